"""Kafka as a topic log: its clients' settings, what they read and write, and what their errors mean."""
