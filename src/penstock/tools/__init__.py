"""Tools for development: a broker, the schema registry's server, the demo."""

__all__: list[str] = []
