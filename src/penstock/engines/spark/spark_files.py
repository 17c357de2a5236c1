"""Checkpoint locations of queries that Spark itself checkpoints: those of DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import EnvironmentProblemError
from penstock.state.documents import local_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark_location"]

_HADOOPS_NAMES = {"s3": "s3a", "gcs": "gs"}
_JARS = {"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure"}
_AZURE = "hadoop-azure, name the place abfss://container@account.dfs.core.windows.net/..."
_OTHER_JARS = {"gs": "Google's gcs-connector", "az": _AZURE, "azure": _AZURE}


def spark_location(session: SparkSession, location: str) -> str:
    """Convert a checkpoint location to the names of Spark's file systems: ``s3`` is Hadoop's ``s3a``.

    A directory is one of this machine's files, whatever file system Spark takes by default; Hadoop decodes no ``%20``.

    Raises:
        EnvironmentProblemError: This Spark has no file system for it.
    """
    if (directory := local_directory(location)) is not None:
        return f"file://{directory.absolute()}"
    scheme, _, rest = location.partition("://")
    scheme = _HADOOPS_NAMES.get(scheme, scheme)
    spark_url = f"{scheme}://{rest}"
    java: Any = session._jvm  # noqa: SLF001 - there is no public way to Hadoop's file systems
    context: Any = session.sparkContext._jsc  # noqa: SLF001
    try:
        java.org.apache.hadoop.fs.Path(spark_url).getFileSystem(context.hadoopConfiguration())
    except Exception as error:
        version = java.org.apache.hadoop.util.VersionInfo.getVersion()
        jar = _JARS.get(scheme)
        needs = f"spark.jars.packages=org.apache.hadoop:{jar}:{version}" if jar else _OTHER_JARS.get(scheme, "its jar")
        raise EnvironmentProblemError(
            f"Spark cannot write to {location}, where queries of DataFrames keep their checkpoints: "
            f"{str(getattr(error, 'java_exception', error)).splitlines()[0]}",
            hint=f"Set penstock.checkpoint.location to a directory that all machines share, or give Spark {needs} and "
            "the settings of that file system. Without DataFrames nothing of this is needed.",
            checkpoint=location,
        ) from error
    return spark_url
