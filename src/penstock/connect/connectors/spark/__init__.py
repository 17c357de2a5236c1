"""Any source or sink of Spark as a connector, by a child process that runs PySpark."""

from penstock.connect.connectors.spark.sink import SparkSinkConnector
from penstock.connect.connectors.spark.source import SparkSourceConnector

__all__ = ["SparkSinkConnector", "SparkSourceConnector"]
