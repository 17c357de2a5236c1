"""A Spark session of an application's own beside the user's, which stays unchanged.

Spark reads most settings from the session in which a query was planned, looks for registered data sources in the
thread's active session, and keeps both. So settings and sources go to a copy of the user's session, which has its
settings, views, functions, query listeners and files of that moment, and shares the Spark application.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark import RDD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["active_session", "keep_rdd_to_df", "clone_session", "move_frame"]

_TO_FRAME = "toDF"


def clone_session(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Copy a session and set settings in the copy, without those that cannot change while Spark runs."""
    java: Any = session._jsparkSession  # noqa: SLF001 - newSession() would lack the user's settings
    to_frame = getattr(RDD, _TO_FRAME, None)
    copy = type(session)(session.sparkContext, java.cloneSession())
    _restore_rdd_to_df(to_frame)
    for name, value in settings.items():
        if copy.conf.isModifiable(name):
            copy.conf.set(name, value)
    _keep_listeners(java, copy._jsparkSession)  # noqa: SLF001
    return copy


def _keep_listeners(theirs: Any, ours: Any) -> None:
    """Let the query listeners of a session hear of its copy's queries: Spark adds only those of the settings."""
    present = {listener.getClass().getName() for listener in ours.streams().listListeners()}
    for listener in theirs.streams().listListeners():
        if listener.getClass().getName() not in present:
            ours.streams().addListener(listener)


def move_frame(session: SparkSession, frame: DataFrame) -> DataFrame:
    """Make a DataFrame of the same rows in another session of the same Spark, whose settings its queries then use."""
    from pyspark.sql import DataFrame as Frame

    java: Any = session._jvm  # noqa: SLF001 - there is no public way
    analysed = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
    rows = java.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, analysed)  # noqa: SLF001
    return Frame(rows, session)


@contextmanager
def active_session(session: SparkSession) -> Iterator[None]:
    """Make a session this thread's active one while the block runs; restore the earlier one, or none, afterwards."""
    java: Any = session._jvm  # noqa: SLF001 - as PySpark itself does it; there is no public way
    sessions = java.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)  # noqa: SLF001
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def keep_rdd_to_df(write: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
    """Wrap a function for ``foreachBatch`` so that ``RDD.toDF`` stays bound to its present session.

    PySpark binds that method to the session that was made last, and makes one for each batch: a user's ``rdd.toDF()``
    would return DataFrames of the query's session, which does not know the user's views.
    """
    to_frame = getattr(RDD, _TO_FRAME, None)

    def call(frame: DataFrame, batch: int) -> None:
        _restore_rdd_to_df(to_frame)
        write(frame, batch)

    return call


def _restore_rdd_to_df(to_frame: Any) -> None:
    if to_frame is not None:
        setattr(RDD, _TO_FRAME, to_frame)
