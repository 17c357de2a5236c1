"""The documents of the console in an application's checkpoint: what it does now, its history, and its topology."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from penstock.errors import PenstockError
from penstock.state.documents import document_time_ms, read_document, replace_document

__all__ = ["HISTORY", "NOW", "TOPOLOGY", "changed_ms", "read_facts", "write_facts"]

NOW = "console/now.json"
HISTORY = "console/history.json"
TOPOLOGY = "console/topology.json"
FORMAT = 1
_MOST_CHARACTERS = 16 << 20  # whoever may write to the checkpoint may have written it


def write_facts(checkpoint: str, name: str, facts: Mapping[str, Any]) -> None:
    """Replace a document. A local one is not waited for to reach the disk: after a power cut it may be missing."""
    replace_document(checkpoint, name, json.dumps({"format": FORMAT, **facts}, separators=(",", ":")))


def read_facts(checkpoint: str, name: str) -> dict[str, Any] | None:
    """Return a document; None if there is none that this version can read."""
    with suppress(PenstockError, OSError, ValueError, RecursionError):
        text = read_document(checkpoint, name)
        if text is not None and len(text) <= _MOST_CHARACTERS:
            document = json.loads(text)
            if isinstance(document, dict) and document.get("format") == FORMAT:
                return document
    return None


def changed_ms(checkpoint: str, name: str) -> int | None:
    """Return when a document was last written; None if there is none."""
    with suppress(PenstockError, OSError):
        return document_time_ms(checkpoint, name)
    return None
