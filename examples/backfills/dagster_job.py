"""An asset of Dagster with a partition for each day, and a job that processes what is new, each hour.

    dagster asset materialize -f dagster_job.py --select turnover_by_day --partition-range 2026-11-01...2026-11-03
    dagster job execute -f dagster_job.py -j turnover
    dagster dev -f dagster_job.py                  # the web interface, its schedule and its backfills

Several days are one run (`BackfillPolicy.single_run`): each run reads its records from the first of its days on.
"""

import os
import sys
from datetime import timedelta
from pathlib import Path

import dagster as dg  # pyright: ignore[reportMissingImports]

sys.path.insert(0, str(Path(__file__).parent))  # turnover.py beside this file; a package of yours is better
import turnover as program  # here: Dagster takes the path away again when it has loaded this file

LOG = os.environ.get("PENSTOCK_LOG", "localhost:9092")


@dg.asset(
    partitions_def=dg.DailyPartitionsDefinition(start_date="2026-11-01"),
    backfill_policy=dg.BackfillPolicy.single_run(),
    retry_policy=dg.RetryPolicy(max_retries=2, delay=60),
)
def turnover_by_day(context: dg.AssetExecutionContext) -> None:
    """The turnover by item of some days, counted anew."""
    days = context.partition_time_window
    program.backfill(LOG, days.start.date(), (days.end - timedelta(days=1)).date())


# A run that fails goes on at its last commit when it is tried again.
@dg.op(retry_policy=dg.RetryPolicy(max_retries=2, delay=60))
def catch_up() -> None:
    program.catch_up(LOG)


@dg.job
def turnover() -> None:
    catch_up()


hourly = dg.ScheduleDefinition(job=turnover, cron_schedule="0 * * * *")
definitions = dg.Definitions(assets=[turnover_by_day], jobs=[turnover], schedules=[hourly])
