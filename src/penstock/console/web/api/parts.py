"""What the JSON interface says of schemas, connectors and SQL, where a registry, a worker or a server is known."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from penstock.base.masking import without_passwords
from penstock.base.secrets import is_secret
from penstock.console.actions import audit
from penstock.console.part_interfaces import SqlResult, Statements
from penstock.console.request_limits import ANSWER_CHARACTERS, cut
from penstock.console.schemas import Schemas
from penstock.console.web.api.writes import require
from penstock.console.web.page import NotThereError, Visit, whole
from penstock.console.web.visitors import Role
from penstock.errors import ConfigError, PenstockError
from penstock.serde.plain_json import plain
from penstock.topology.description import graph_in_text

__all__ = [
    "complete",
    "connectors",
    "delete",
    "query",
    "register",
    "restore",
    "set_compatibility",
    "statements",
    "subject",
    "subjects",
]


def _registry(visit: Visit) -> Schemas:
    if visit.site.schemas is None:
        raise NotThereError("no schema registry is known", hint="Start the console with --registry URL.")
    return visit.site.schemas


def subjects(visit: Visit) -> Any:
    """List the subjects, and the compatibility of the registry; ``deleted=true``: deleted subjects, too."""
    registry = _registry(visit)
    return {"subjects": registry.subjects(deleted=visit.flag("deleted")), "compatibility": registry.compatibility()[0]}


def subject(visit: Visit) -> Any:
    """Return the versions of the subject ``name``, and one of them: ``version``, by default the newest.

    ``deleted=true``: deleted versions, too.
    """
    registry, name = _registry(visit), visit.get("name")
    numbers = registry.versions(name, deleted=visit.flag("deleted"))
    if not numbers:
        raise NotThereError(
            f"there is no subject {name[:100]!r}", hint="/schemas lists them, with deleted=true deleted ones, too."
        )
    number = whole(visit.get("version"), "version", numbers[-1], 2**31)
    return {
        "versions": numbers,
        "compatibility": registry.compatibility(name)[0],
        **asdict(registry.version(name, number)),
    }


def register(visit: Visit, body: Mapping[str, Any]) -> Any:
    """Register ``schema`` of a ``type`` under ``subject``; ``dry_run=true`` says whether it is compatible."""
    registry, name = _registry(visit), _text(body, "subject").strip()
    kind, schema = str(body.get("type", "AVRO")), _text(body, "schema")
    if visit.flag("dry_run"):
        numbers = registry.versions(name)
        if not numbers:
            note = "The subject is new."
        elif registry.is_compatible(name, kind, schema):
            note = f"It is compatible: {registry.compatibility(name)[0]}."
        else:
            note = f"It is not compatible ({registry.compatibility(name)[0]}): the registry will refuse it."
        return {"subject": name, "note": note, "moves": []}
    schema_id = registry.register(name, kind, schema)
    return {"subject": name, "changes": [f"{name}: schema id {schema_id}"], "id": schema_id}


def delete(visit: Visit, body: Mapping[str, Any]) -> Any:
    """Delete ``version`` of ``subject``, or all of its versions; ``permanently``: deleted ones, for good."""
    name, version, permanently = _text(body, "subject"), body.get("version"), body.get("permanently", False)
    if isinstance(version, bool) or not isinstance(version, int | None):
        raise ConfigError("version is a whole number", hint="Leave it out to delete the subject.")
    if not isinstance(permanently, bool):
        raise ConfigError("permanently is true or false", hint="Leave it out to delete what can be restored.")
    gone = _registry(visit).delete(name, version, permanently=permanently)
    how = "deleted permanently" if permanently else "deleted"
    return {"subject": name, "changes": [f"{name}: versions {', '.join(map(str, gone))} {how}"], "versions": gone}


def restore(visit: Visit, body: Mapping[str, Any]) -> Any:
    """Register the schema of a deleted ``version`` of ``subject`` again."""
    name, version = _text(body, "subject"), body.get("version")
    if isinstance(version, bool) or not isinstance(version, int):
        raise ConfigError("version is a whole number", hint="It is the number of a deleted version.")
    number = _registry(visit).restore(name, version)
    return {"subject": name, "changes": [f"{name}: version {version} restored as {number}"], "version": number}


def set_compatibility(visit: Visit, body: Mapping[str, Any]) -> Any:
    """Set the ``level`` of ``subject``."""
    registry, name, level = _registry(visit), _text(body, "subject"), _text(body, "level")
    before = registry.compatibility(name)[0]
    registry.set_compatibility(name, level)
    return {"subject": name, "changes": [f"{name}: compatibility {before} -> {level}"]}


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{name} is missing", hint=f"Send {name}, a text.")
    return value


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
        "graph": graph_in_text(result.topology) if result.topology else None,
    }
