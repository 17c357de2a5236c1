"""What the JSON interface says of connectors and of SQL, where a worker or a server is known."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from penstock.base.masking import without_passwords
from penstock.base.secrets import is_secret
from penstock.console.actions import audit
from penstock.console.limits import ANSWER_CHARACTERS, cut
from penstock.console.sources import SqlResult, Statements
from penstock.console.web.api.writes import require
from penstock.console.web.page import NotThereError, Visit
from penstock.console.web.visitors import Role
from penstock.errors import ConfigError, PenstockError
from penstock.serde.plain import plain

__all__ = ["complete", "connectors", "query", "statements"]

_MOST_CHARACTERS = 20_000
_PAIR = re.compile(r"""(["'`]?)([\w.-]+)\1(\s*=\s*)'(?:[^']|'')*'""")


def connectors(visit: Visit) -> Any:
    """List the connectors with their tasks."""
    worker = visit.site.connectors
    if worker is None:
        raise NotThereError("no Connect worker is known", hint="Start the console with --connect URL.")
    return [asdict(visit.site.exposure.connector(each)) for each in worker.all()]


def _statements(visit: Visit) -> Statements:
    sql_server = visit.site.statements
    if sql_server is None:
        raise NotThereError("no server of SQL is known", hint="Start the console with --sql URL.")
    return sql_server


def complete(visit: Visit) -> Any:
    """Return what may stand at a place of a text of SQL."""
    text = visit.get("text")
    at = int(visit.get("at")) if visit.get("at").isdecimal() else len(text)
    return [
        {"word": word, "kind": kind, "replaces": replaces}
        for word, kind, replaces in _statements(visit).complete(text, at)
    ]


def query(visit: Visit) -> Any:
    """Run statements that only read."""
    results = _statements(visit).run(visit.get("sql"), writes=False, records=not visit.site.exposure.is_limited)
    return {"results": [_document(each) for each in results]}


def statements(visit: Visit, body: Mapping[str, Any], who: str) -> Any:
    """Run statements; those that change something need an administrator, and are logged."""
    try:
        require(visit, Role.ADMIN)
    except PenstockError as error:
        audit(who, "run SQL", f"refused: {error.message}")
        raise
    text = body.get("sql")
    if not isinstance(text, str) or not text.strip() or len(text) > _MOST_CHARACTERS:
        raise ConfigError("sql is a text with statements", hint='For example {"sql": "SHOW STREAMS;"}.')
    said = f"SQL {_without_secrets(text)[:500]!r}"
    try:
        results = _statements(visit).run(text, writes=True, records=not visit.site.exposure.is_limited)
    except PenstockError as error:
        audit(who, said, f"refused: {error.message}")
        raise
    audit(who, said, "done")
    return {"results": [_document(each) for each in results]}


def _without_secrets(text: str) -> str:
    """Return statements for the log, without the values of secret settings.

    >>> _without_secrets("CREATE SOURCE CONNECTOR c WITH ('db.password' = 'it''s one', 'topic'='t');")
    "CREATE SOURCE CONNECTOR c WITH ('db.password' = '***', 'topic'='t');"
    """

    def shown(pair: re.Match[str]) -> str:
        quote, name, equals = pair.groups()
        return f"{quote}{name}{quote}{equals}'***'" if is_secret(name) else pair[0]

    return without_passwords(_PAIR.sub(shown, text))


def _document(result: SqlResult) -> dict[str, Any]:
    rows, size = list[list[Any]](), 0
    for row in result.rows:
        rows.append([cut(cell) if isinstance(cell, str) else cell for cell in row])
        size += len(json.dumps(rows[-1], default=plain))
        if size > ANSWER_CHARACTERS:
            break
    return {
        "statement": result.statement,
        "columns": [{"name": name, "type": kind} for name, kind in result.columns],
        "rows": rows,
        "message": result.message,
        "is_cut": result.is_cut or len(rows) < len(result.rows),
    }
