"""The pages of the connectors, written from their definitions of settings."""

from __future__ import annotations

import inspect
from pathlib import Path

from penstock.connect.config import Model, Refused

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

EXPERIMENTAL = (
    "**Experimental:** it was compared neither with recordings of the connector that it follows nor with a real peer "
    "in all its faults. A line in the log says so when it starts."
)
ABOUT = (
    "Connectors under a name of Kafka's, Confluent's or Debezium's were compared, case by case, with what these do, "
    "but for DatagenConnector, whose generators are its own. HttpSource and WebhookSink were run against servers that "
    "misbehave in the ways of HTTP (RFC 9110, 9112), ObjectSink and the connectors of lakehouses against a server of "
    "S3 whose requests fail before and after they are carried out. Those marked *experimental* are tested, but not yet "
    "against recordings or real peers in this way."
)


def connector_pages(docs: Path) -> dict[Path, str]:
    """The text of each page by its place: one a connector, and their list."""
    from penstock.connect.connectors.installed_plugins import OWN
    from penstock.connect.plugins.connector_definition import COMMON, SINK, SOURCE

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
        if connector.experimental:
            parts += [EXPERIMENTAL, ""]
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
        parts += _of_model(connector.model)
        pages[folder / f"{name.lower()}.md"] = "\n".join(parts) + "\n"
        state = ", *experimental*" if connector.experimental else ""
        rows.append(f"| [{name}]({name.lower()}.md) | {kind}{state} | {about.splitlines()[0]} |")
    head = [NOTE, "", "# Connectors", "", ABOUT, "", "| | | |", "| --- | --- | --- |"]
    pages[folder / "index.md"] = "\n".join([*head, *sorted(rows)]) + "\n"
    return pages


def _of_model(model: Model) -> list[str]:
    """The settings of the model that the connector does not have."""
    parts: list[str] = []
    if model.refused:
        parts += ["", "## Settings that are refused", ""]
        parts += [f"A config that has one of these settings of {model.software} is refused.", ""]
        parts += ["| setting | what to do |", "| --- | --- |"]
        for name, found in model.refused.items():
            refused = found if isinstance(found, Refused) else Refused(found)
            taken = ", ".join(f"`{value}`" if value else "an empty value" for value in refused.unless)
            parts.append(f"| {_shown(name)} | {refused.advice}{f' (Accepted: {taken}.)' if taken else ''} |")
    if model.idle:
        parts += ["", "## Settings without effect", "", "The connector names them when it starts.", ""]
        parts += ["| setting | why |", "| --- | --- |"]
        parts += [f"| {_shown(name)} | {reason[:1].upper()}{reason[1:]} |" for name, reason in model.idle.items()]
    return parts


def _shown(name: str) -> str:
    return f"`{name}*`" if name.endswith(".") else f"`{name}`"
