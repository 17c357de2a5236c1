"""A Spark session of an application's own beside the user's, which stays unchanged, with Python data sources in it.

Spark reads most settings from the session in which a query was planned, looks for registered data sources in the
thread's active session, and keeps both. So settings and sources go to a copy of the user's session, which has its
settings, views, functions, query listeners and files of that moment, and shares the Spark application.

Spark prints a source's options in plans and keeps them in its event log. The source's class is only pickled and sent to
the processes that work with it. So what they need, passwords among it, goes into attributes of a class of its own.

Queries of a session have a trigger, and are waited for, in one way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas import functions
from pyspark.util import PythonEvalType

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = [
    "active_session",
    "clone_session",
    "commit_trigger",
    "configured_source",
    "has_ended",
    "keep_rdd_to_df",
    "load_source",
    "map_in_arrow",
    "move_frame",
]


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


def map_in_arrow(frame: DataFrame, function: Callable[[Iterator[Any]], Iterator[Any]], schema: str) -> DataFrame:
    """Do as ``DataFrame.mapInArrow``, which imports pandas to see that it is there, and then does not use it."""
    from pyspark.sql import DataFrame as Frame

    udf: Any = functions
    column = udf.vectorized_udf(function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)(
        *[frame[name] for name in frame.columns]
    )
    return Frame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)  # noqa: FBT003, SLF001


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


def configured_source(base: type[DataSource], name: str, **attributes: Any) -> type[DataSource]:
    """Make a subclass with these attributes that is pickled by value, to be registered under a name.

    Args:
        base: The source, which reads the attributes from itself.
        name: The name for ``readStream.format``; registering another source of this name replaces it.
        attributes: Values that can be pickled.
    """
    members = {**attributes, "name": classmethod(lambda cls: name), "__module__": "__main__"}  # noqa: ARG005
    return type(base.__name__, (base,), members)


def load_source(session: SparkSession, source: type[DataSource]) -> DataFrame:
    """Register a data source in a session of the application's own, and return the DataFrame of what it reads.

    Spark looks for registered sources in the active session. For a session made by ``newSession()`` it would find the
    source of the session that it came from: refuse to register it, and then not find it when a query asks for it.
    """
    with active_session(session):
        session.dataSource.register(source)
        return session.readStream.format(source.name()).load()


def commit_trigger(commit_interval_ms: int, *, until_latest: bool) -> dict[str, Any]:
    """Return the arguments of Spark's ``DataStreamWriter.trigger``.

    Args:
        commit_interval_ms: ``commit.interval.ms``, the time from one batch to the start of the next.
        until_latest: Whether the query ends when all records that are there now have been processed.

    >>> commit_trigger(100, until_latest=False)
    {'processingTime': '100 milliseconds'}
    """
    return {"availableNow": True} if until_latest else {"processingTime": f"{commit_interval_ms} milliseconds"}


def has_ended(query: StreamingQuery, timeout_s: float) -> bool:
    """Wait for the end of a query for a while; return whether it has ended.

    Spark looks for an error first, and then whether the query still runs. One that fails between the two looks seems to
    have ended well, so the error is asked for once more.

    Raises:
        StreamingQueryException: An error has ended it.
    """
    is_over = bool(query.awaitTermination(timeout_s))  # type: ignore[arg-type] # fractions are fine
    if is_over and (error := query.exception()) is not None:
        raise error
    return is_over
