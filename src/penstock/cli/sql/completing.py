"""Completion at the prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from penstock.sql.catalog import Catalog
from penstock.sql.completion import Known, completions

__all__ = ["SqlCompleter"]


class SqlCompleter(Completer):
    """Completes what may stand at the cursor.

    Args:
        catalog: Returns the present catalog.
        queries: Returns the ids of queries.
    """

    def __init__(self, catalog: Callable[[], Catalog], queries: Callable[[], Sequence[str]]) -> None:
        self._catalog = catalog
        self._queries = queries

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Yield completions; keywords take the case of what has been typed."""
        del complete_event
        catalog = self._catalog()
        sources = {
            name: (source.kind, [(column.name, f"{column.type}") for column in source.columns])
            for name, source in catalog.sources.items()
        }
        known = Known(sources, catalog.topics, self._queries())
        for word, kind, replaces in completions(document.text_before_cursor, document.text, known):
            yield Completion(word, start_position=-replaces, display_meta=kind)
