"""The pages of the connectors, written from their definitions of settings."""

from __future__ import annotations

import inspect
from pathlib import Path

__all__ = ["connector_pages"]

NOTE = "<!-- Written by tools/build_docs.py from the connector's definition: change that. -->"


def connector_pages(docs: Path) -> dict[Path, str]:
    """The text of each page by its place: one a connector, and their list."""
    from penstock.connect.connectors import LIBRARY

    folder = docs / "connect" / "connectors"
    pages, rows = {}, []
    for connector in LIBRARY:
        name = connector.java_class.rpartition(".")[2]
        text = inspect.cleandoc(connector.__doc__ or "")
        kind = "sink" if hasattr(connector.task_class, "put") else "source"
        parts = [NOTE, "", f"# {name}", "", f"A {kind}: `connector.class: {connector.java_class}`", "", text, ""]
        parts += ["| setting | type | default | |", "| --- | --- | --- | --- |"]
        for setting in connector.config:
            shown = setting.described()
            default = (
                "**must be set**" if setting.required else f"`{shown['default_value']}`" * bool(shown["default_value"])
            )
            parts.append(
                f"| `{setting.name}` | {setting.kind.name.lower()} | {default} | {setting.doc.replace('|', '/')} |"
            )
        pages[folder / f"{name.lower()}.md"] = "\n".join(parts) + "\n"
        rows.append(f"| [{name}]({name.lower()}.md) | {kind} | {text.splitlines()[0]} |")
    head = [NOTE, "", "# Connectors", "", "| | | |", "| --- | --- | --- |"]
    pages[folder / "index.md"] = "\n".join([*head, *sorted(rows)]) + "\n"
    return pages
