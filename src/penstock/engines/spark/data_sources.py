"""Python data sources in a session of an application's own.

Spark prints a source's options in plans and keeps them in its event log. The source's class is only pickled and sent to
the processes that work with it. So what they need, passwords among it, goes into attributes of a class of its own.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource

from penstock.engines.spark.own_session import active_session

__all__ = ["configured_source", "load_source"]


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
