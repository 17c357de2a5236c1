"""The commands that run a broker, a registry, or the web console."""
