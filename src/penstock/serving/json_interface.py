"""JSON answers whose texts may hold any characters, and a page that describes a JSON interface."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from starlette.responses import JSONResponse

from penstock.base.escapes import json_text

__all__ = ["EscapedJson", "api_page"]


class EscapedJson(JSONResponse):
    """JSON with escapes for characters that a terminal acts upon, and for halves of surrogate pairs."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return json_text(content, allow_nan=False, separators=(",", ":")).encode()


def api_page(document: Mapping[str, Any]) -> str:
    """Return an HTML page with the endpoints of an OpenAPI document and their parameters.

    >>> "GET /stores" in api_page({"info": {"title": "Queries"}, "paths": {"/stores": {"get": {}}}})
    True
    """
    title = escape(str(document["info"]["title"]))
    rows = [
        f"<dt><code>{escape(method.upper())} {escape(path)}</code></dt>{_parameters(operation)}"
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>'
        f"<body><h1>{title}</h1><p>Answers are JSON; the same as "
        f'<a href="openapi.json">OpenAPI</a>.</p><dl>{"".join(rows)}</dl></body></html>'
    )


def _parameters(operation: Mapping[str, Any]) -> str:
    said = [
        f"<dd><code>{escape(each['name'])}</code> ({escape(each['in'])}): {escape(_kind(each.get('schema', {})))}</dd>"
        for each in operation.get("parameters", ())
    ]
    return "".join(said)


def _kind(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"] if each.get("type") != "null")
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    default = f", by default {schema['default']}" if schema.get("default") not in (None, "") else ""
    return f"{schema.get('type', 'any')}{default}"
