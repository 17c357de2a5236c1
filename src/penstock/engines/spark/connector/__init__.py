"""The child process of Spark connectors: a source that is read, or a sink that is written to."""
