"""Two DAGs of Airflow 3: the turnover each hour, and backfills of days by hand.

    airflow dags test turnover
    airflow dags trigger turnover_backfill --conf '{"first": "2026-11-01", "last": "2026-11-03"}'

The tasks import Penstock when they run, so that the scheduler parses this file quickly. Where Airflow's packages and
Penstock's do not go together, install Penstock into an environment of its own and use
`@task.external_python(python="/opt/penstock/bin/python")`.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from airflow.sdk import Param, dag, task  # pyright: ignore[reportMissingImports]

sys.path.insert(0, str(Path(__file__).parent))  # turnover.py beside this file; a package of yours is better
LOG = os.environ.get("PENSTOCK_LOG", "localhost:9092")


# A run that fails goes on at its last commit when it is tried again. One run of an application at a time.
@dag(schedule="@hourly", start_date=datetime(2026, 11, 1, tzinfo=UTC), catchup=False, max_active_runs=1)
def turnover() -> None:
    @task(retries=2, retry_delay=timedelta(minutes=1))
    def catch_up() -> None:
        import turnover

        turnover.catch_up(LOG)

    catch_up()


@dag(
    schedule=None,
    max_active_runs=1,
    params={
        "first": Param("2026-11-01", type="string", format="date"),
        "last": Param("2026-11-01", type="string", format="date"),
    },
)
def turnover_backfill() -> None:
    @task(retries=2, retry_delay=timedelta(minutes=1))
    def backfill(params: dict[str, str]) -> None:
        import turnover

        turnover.backfill(LOG, date.fromisoformat(params["first"]), date.fromisoformat(params["last"]))

    backfill()  # Airflow fills in params  # pyright: ignore[reportCallIssue]


turnover()
turnover_backfill()
