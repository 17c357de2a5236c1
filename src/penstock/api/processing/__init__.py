"""Processors and transformers in the fluent API."""
