"""The pages of the connectors, written from their definitions of settings."""

from __future__ import annotations

import inspect
from pathlib import Path

__all__ = ["connector_pages"]

OF_CLIENTS = (
    "sasl.",
    "ssl.",
    "security.",
    "metric.",
    "metrics.",
    "config.providers",
    "forwarding.",
    "connector.plugin",
)
NOTE = "<!-- Written by tools/build_docs.py from the connector's definition: change that. -->"


def connector_pages(docs: Path) -> dict[Path, str]:
    """The text of each page by its place: one a connector, and their list."""
    from penstock.connect.connectors.found import OWN
    from penstock.connect.plugins.common_settings import COMMON
    from penstock.connect.plugins.kind_settings import SINK, SOURCE

    of_all = {setting.name for setting in (*COMMON, *SOURCE, *SINK)} - {"topics", "topics.regex"}
    of_all |= {f"{part}.converter{ending}" for part in ("key", "value", "header") for ending in ("", ".plugin.version")}
    of_all |= {"transforms", "predicates"}
    folder = docs / "connect" / "connectors"
    pages, rows = {}, []
    for connector in OWN:
        name = connector.java_class.rpartition(".")[2]
        about = inspect.cleandoc(connector.__doc__ or "")
        kind = "sink" if hasattr(connector.task_class, "put") else "source"
        parts = [NOTE, "", f"# {name}", "", f"A {kind}: `connector.class: {connector.java_class}`", "", about, ""]
        parts += ["| setting | type | default | |", "| --- | --- | --- | --- |"]
        for setting in connector.config:
            if setting.name in of_all or setting.name.startswith(OF_CLIENTS):
                continue
            shown = setting.described()
            default = (
                "**must be set**" if setting.required else f"`{shown['default_value']}`" * bool(shown["default_value"])
            )
            text = " ".join(setting.doc.replace("|", "/").split()).rstrip(".") + "."
            rule = "" if setting.rule is None else f" Valid: `{setting.rule}`".replace("|", "/")
            parts.append(f"| `{setting.name}` | {setting.kind.name.lower()} | {default} | {text}{rule} |")
        pages[folder / f"{name.lower()}.md"] = "\n".join(parts) + "\n"
        rows.append(f"| [{name}]({name.lower()}.md) | {kind} | {about.splitlines()[0]} |")
    head = [NOTE, "", "# Connectors", "", "| | | |", "| --- | --- | --- |"]
    pages[folder / "index.md"] = "\n".join([*head, *sorted(rows)]) + "\n"
    return pages
