"""The catalog as plain SQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.sql.catalog import Catalog
from penstock.sql.parse import Parsed, parse_script
from penstock.sql.parse import command_nodes as c
from penstock.sql.parse import statement_nodes as s
from penstock.sql.session.journal import JournalEntry
from penstock.sql.session.workspace import Workspace

__all__ = ["exported"]


def exported(work: Workspace) -> str:
    """The statements of the journal whose streams, tables, types and queries are still there, with their settings."""
    lines: list[str] = []
    settings: Mapping[str, str] = {}
    for entry, parsed in _kept(work):
        own = {name: value for name, value in entry.settings.items() if work.settings.statements.get(name) != value}
        lines += [f"UNSET '{name}';" for name in settings if name not in own]
        changed = {name: value for name, value in own.items() if settings.get(name) != value}
        lines += [f"SET '{name}' = '{value.replace(chr(39), chr(39) * 2)}';" for name, value in changed.items()]
        settings = own
        lines.append(f"{parsed.text.strip()};")
    return "\n".join([*lines, ""]) if lines else ""


def _kept(work: Workspace) -> Iterator[tuple[JournalEntry, Parsed]]:
    entries = [(entry, parsed) for entry in work.journal.read() for parsed in parse_script(entry.text)]
    last_made: dict[tuple[str, str], int] = {}
    for number, (_, parsed) in enumerate(entries):
        statement = parsed.statement
        if isinstance(statement, s.CreateSource | s.CreateAs):
            last_made["source", statement.name] = number
        elif isinstance(statement, s.CreateType):
            last_made["type", statement.name] = number
    inserts = _inserts(work.catalog)
    for number, (entry, parsed) in enumerate(entries):
        statement = parsed.statement
        match statement:
            case s.CreateSource(name=name) | s.CreateAs(name=name):
                if name in work.catalog.sources and last_made.get(("source", name)) == number:
                    yield entry, parsed
            case s.AlterSource(name=name):
                if name in work.catalog.sources and last_made.get(("source", name), number) < number:
                    yield entry, parsed
            case s.CreateType(name=name):
                if name in work.catalog.types and last_made.get(("type", name)) == number:
                    yield entry, parsed
            case s.InsertInto():
                if parsed.text in inserts:
                    yield entry, parsed
            case c.Steer(action="PAUSE", query_id=str(query_id)):
                if query_id in work.paused:
                    yield entry, parsed


def _inserts(catalog: Catalog) -> set[str]:
    return {plan.text for plan in catalog.queries.values() if not plan.text.lstrip().upper().startswith("CREATE")}
