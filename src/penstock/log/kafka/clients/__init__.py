"""The clients of a broker: connections, consumers, producers."""
