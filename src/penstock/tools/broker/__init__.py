"""A Kafka broker on this machine, for development and tests: one KRaft process from jars, no Docker."""
