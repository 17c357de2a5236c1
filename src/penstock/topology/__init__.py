"""The logical graph: frozen nodes, names, checks, describe. Pure data."""
