"""How a data source is told what nobody else may read, such as passwords.

Spark prints a source's options in plans and keeps them in its event log. The source's class it only hands on, pickled,
to the processes that work with it: what they need is in a class of its own.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource

__all__ = ["private_source"]


def private_source(base: type[DataSource], name: str, **attributes: Any) -> type[DataSource]:
    """A subclass with these attributes that is pickled by value, to be registered under a name.

    Args:
        base: The source, which reads the attributes from itself.
        name: For ``readStream.format``; registering the next one of the same name replaces it.
        attributes: Whatever can be pickled.
    """
    members = {**attributes, "name": classmethod(lambda cls: name), "__module__": "__main__"}  # noqa: ARG005
    return type(base.__name__, (base,), members)
