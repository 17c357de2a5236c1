"""What ``KTable.transform_values`` takes."""

from __future__ import annotations

from typing import Generic, TypeVar

from penstock.api.processor import ProcessorContext

__all__ = ["ValueTransformerWithKey"]

K = TypeVar("K")
V = TypeVar("V")
VR = TypeVar("VR")


class ValueTransformerWithKey(Generic[K, V, VR]):
    """Makes new values of a table's rows, with state if it wants: Kafka's ``ValueTransformerWithKey``.

    Every task makes its own. ``transform`` is called for deletions too, with None as the value.

    >>> class Shout(ValueTransformerWithKey[str, str, str]):
    ...     def transform(self, key, value):
    ...         return None if value is None else f"{key} says {value.upper()}"
    >>> from penstock.testing import try_out
    >>> try_out(lambda s: s.to_table().transform_values(Shout), [("a", "hi"), ("a", None)])
    [('a', 'a says HI'), ('a', None)]
    """

    context: ProcessorContext

    def init(self, context: ProcessorContext) -> None:
        """Called once before the first row; keep the context and get stores. It cannot forward or schedule."""
        self.context = context

    def transform(self, key: K, value: V | None) -> VR | None:  # noqa: ARG002 - for subclasses
        """The new value; None deletes the row."""
        raise TypeError(f"{type(self).__name__} has no method transform(key, value)")

    def close(self) -> None:
        """Called when the task ends."""
