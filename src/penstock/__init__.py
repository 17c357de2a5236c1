"""Penstock: Kafka Streams for Python, running on Spark."""
