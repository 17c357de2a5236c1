"""Languages other than Python in which parts of a topology are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from penstock.base.extension_points import ExtensionPoint

if TYPE_CHECKING:
    from penstock.api.builder import StreamsBuilder
    from penstock.api.stream import KStream
    from penstock.api.table import KTable

__all__ = ["LANGUAGES", "Language"]


class Language(Protocol):
    """A function that adds what a text says to a topology: Penstock SQL is one, behind `StreamsBuilder.sql`."""

    def __call__(
        self, builder: StreamsBuilder, text: str, session: Any = None
    ) -> KStream[Any, dict[str, Any]] | KTable[Any, dict[str, Any]]:
        """Add the steps of a text; return its result.

        Args:
            builder: The builder of the topology.
            text: The text.
            session: Names that were declared before, in the language's own form.
        """
        ...


LANGUAGES: ExtensionPoint[Language] = ExtensionPoint(
    "penstock.languages", callable, "a function of a StreamsBuilder, a text and a session"
)
"""The languages of topologies, by name; ``sql`` is the one of `StreamsBuilder.sql`."""
