"""Avro, JSON Schema and Protobuf: one parser and one mapping to Connect's schemas for each."""
