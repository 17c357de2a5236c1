"""Parsing of JSON from clients; its depth is limited first, as parsers and rules recurse on it."""

from __future__ import annotations

import json
from typing import Any

from penstock.base.json_depth import depth_of

__all__ = ["MAX_DEPTH", "BadDocumentError", "parse_json", "parse_object"]

MAX_DEPTH = 100


class BadDocumentError(ValueError):
    """The text is not valid JSON, or nested too deeply."""


def parse_json(text: bytes | str) -> Any:
    """Parse JSON text.

    >>> parse_json('{"a": [1]}')
    {'a': [1]}

    Raises:
        BadDocumentError: The text is not JSON in UTF-8, contains NaN, an infinite number or lone surrogates, or is
            nested more deeply than `MAX_DEPTH`.
    """
    try:
        raw = text.encode() if isinstance(text, str) else text
        if depth_of(raw) > MAX_DEPTH:
            _refuse_depth()
        document = json.loads(raw.decode(), parse_constant=_refuse)
        json.dumps(document, ensure_ascii=False).encode()  # fails on lone surrogates, which nothing can store
    except BadDocumentError:
        raise
    except UnicodeError as error:
        raise BadDocumentError("the text has characters that UTF-8 cannot encode") from error
    except ValueError as error:
        raise BadDocumentError(f"not JSON: {str(error)[:200]}") from error
    return document


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse the body of a request as a JSON object; an empty body is an empty object.

    Raises:
        BadDocumentError: The body is not a JSON object; see `parse_json`.
    """
    document = parse_json(body) if body.strip() else {}
    if not isinstance(document, dict):
        raise BadDocumentError("the body is not a JSON object")
    return document


def _refuse_depth() -> None:
    raise BadDocumentError(f"JSON nested more than {MAX_DEPTH} levels deep is not taken")


def _refuse(name: str) -> Any:
    raise BadDocumentError(f"{name} is not JSON")
