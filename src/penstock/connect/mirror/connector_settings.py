"""The settings of the mirror's connectors, as Kafka defines them: a table for each, over one that all three share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from penstock.connect.config import AnyCase, ConfigDef, Importance, Kind, OneOf, Setting, Validator
from penstock.connect.plugins.connector_definition import plain_settings

__all__ = ["CHECKPOINT_CONFIG", "HEARTBEAT_CONFIG", "SOURCE_CONFIG"]

Tables = dict[str, dict[str, Any]]
RULES: dict[str, Validator] = {
    "offset-syncs.topic.location": OneOf(("source", "target")),
    "security.protocol": AnyCase(("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")),
}


def _definition(tables: Tables, name: str) -> ConfigDef:
    return ConfigDef([*plain_settings(), *_settings(tables, "common"), *_settings(tables, name)])


def _settings(tables: Tables, table: str) -> Iterator[Setting]:
    for name, row in tables[table].items():
        kind, importance, doc, *default = tables[row][name] if isinstance(row, str) else row
        keywords = {"default": default[0]} if default else {}
        rule = RULES.get(name)
        yield Setting(name=name, kind=Kind[kind], importance=Importance[importance], doc=doc, rule=rule, **keywords)


_TABLES: Tables = json.loads(files(__package__).joinpath("connector_settings.json").read_text(encoding="utf-8"))
SOURCE_CONFIG, CHECKPOINT_CONFIG, HEARTBEAT_CONFIG = (
    _definition(_TABLES, name) for name in ("source", "checkpoint", "heartbeat")
)
