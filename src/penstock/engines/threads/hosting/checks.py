"""Checks of an epoch that the driver makes: of Spark before it begins, of its topics while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engines.application.identities import recreated_error, recreated_topics
from penstock.engines.spark.masters import is_one_process
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from pyspark import SparkContext

    from penstock.engines.threads.hosting.job import ContinuousJob
    from penstock.log.base import TopicLog

__all__ = ["control_addresses", "refuse_speculation", "require_core_for_dataframes", "require_same_topics"]


def control_addresses(context: SparkContext) -> tuple[str, str]:
    """Return the driver's host for threads, and the address to listen on."""
    settings = context.getConf()
    if is_one_process(settings.get("spark.master") or ""):
        return "127.0.0.1", "127.0.0.1"
    host = settings.get("spark.driver.host") or "127.0.0.1"
    return host, settings.get("spark.driver.bindAddress") or host


def refuse_speculation(context: SparkContext) -> None:
    """Raise ConfigError if Spark runs slow tasks twice: each second attempt would fence the first."""
    if str(context.getConf().get("spark.speculation", "false")).lower() == "true":
        raise ConfigError(
            "processing.mode is continuous, and spark.speculation is on: Spark would start stream threads, which run "
            "as long as the application, a second time",
            hint="Start Spark with spark.speculation=false, or set processing.mode=micro_batch.",
            setting="spark.speculation",
        )


def require_core_for_dataframes(cores: int) -> None:
    """Raise ConfigError if stream threads would leave no core to the queries of an application's DataFrames."""
    if cores < 2:
        raise ConfigError(
            "processing.mode is continuous, whose stream threads keep Spark's cores, and the session of the topology's "
            "DataFrames has one core: their queries would never run",
            hint='Start Spark with two or more, such as master("local[2]"), or set processing.mode=micro_batch.',
            setting="processing.mode",
        )


def require_same_topics(log: TopicLog, job: ContinuousJob) -> None:
    """Raise OffsetOutOfRangeError if a topic was made again: threads know topics by their names only."""
    if again := recreated_topics(job.topic_ids, log.topic_ids(job.plan.external_topics)):
        raise recreated_error(again, job.plan.application_id)
