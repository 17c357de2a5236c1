"""Tables of lakehouses: each record is a row once, as offsets are in the commits of the tables."""

from penstock.connect.connectors.lakehouse.delta import DeltaSinkConnector, DeltaSinkTask

__all__ = ["DeltaSinkConnector", "DeltaSinkTask"]
