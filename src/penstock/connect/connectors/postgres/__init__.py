"""Change data capture for PostgreSQL: the changes of tables by logical decoding, in Debezium's envelopes."""

from penstock.connect.connectors.postgres.source import PostgresChangesConnector, PostgresChangesTask

__all__ = ["PostgresChangesConnector", "PostgresChangesTask"]
