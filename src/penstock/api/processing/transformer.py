"""The base class of transformers for ``KTable.transform_values``."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from penstock.api.processing.processor import Headers, ProcessorContext

__all__ = ["TransformerContext", "ValueTransformerWithKey"]

K = TypeVar("K")
V = TypeVar("V")
VR = TypeVar("VR")


class TransformerContext(ProcessorContext, Protocol):
    """The view of a transformer on its task: Kafka's ``ProcessorContext`` with the time and headers of the row."""

    def timestamp(self) -> int:
        """Return the time of the row in milliseconds: of its change, also when the table is read later."""
        ...

    def headers(self) -> Headers:
        """Return the headers of the record that changed the row; none when the table is read later."""
        ...


class ValueTransformerWithKey(Generic[K, V, VR]):
    """A function of a table's rows that may use state stores: Kafka's ``ValueTransformerWithKey``.

    Each task makes an object of it. ``transform`` is called for deletions too, with None as the value.

    >>> class Shout(ValueTransformerWithKey[str, str, str]):
    ...     def transform(self, key, value):
    ...         return None if value is None else f"{key} says {value.upper()}"
    >>> from penstock.testing import try_out
    >>> try_out(lambda s: s.to_table().transform_values(Shout), [("a", "hi"), ("a", None)])
    [('a', 'a says HI'), ('a', None)]
    """

    context: TransformerContext

    def init(self, context: TransformerContext) -> None:
        """Prepare for rows: keep the context and get stores. It cannot forward or schedule. Called once."""
        self.context = context

    def transform(self, key: K, value: V | None) -> VR | None:  # noqa: ARG002 - for subclasses
        """Return the new value; None deletes the row."""
        raise TypeError(f"{type(self).__name__} has no method transform(key, value)")

    def close(self) -> None:
        """Release resources. Called when the task ends."""
