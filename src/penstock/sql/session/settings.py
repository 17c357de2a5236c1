"""The settings of a session: its log, its service id, those of statements and those of applications."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from penstock.config import StreamsConfig
from penstock.errors import ConfigError
from penstock.sql.functions import UserFunctions, load_functions

__all__ = ["DEFAULT_LOG", "KNOWN", "SessionSettings", "check_setting"]

DEFAULT_LOG = "penstock.db"
STREAMS = "ksql.streams."
# The settings of the language, with their defaults and meanings.
KNOWN: Mapping[str, tuple[str, str]] = {
    "ksql.service.id": ("default_", "the prefix of application ids and of the topic of statements"),
    "ksql.output.topic.name.prefix": ("", "the prefix of topics that queries make"),
    "ksql.persistence.default.format.key": ("KAFKA", "the format of keys if none is given"),
    "ksql.persistence.default.format.value": ("", "the format of values if none is given"),
    "ksql.persistence.wrap.single.values": ("", "whether a single value is a field of a record"),
    "ksql.sink.partitions": ("", "the partitions of topics that queries make"),
    "ksql.sink.replicas": ("", "the replicas of topics that queries make"),
    "ksql.timestamp.throw.on.invalid": ("false", "whether a bad time of a record ends its query"),
    "ksql.extension.modules": ("", "modules and files of Python functions, with commas between them"),
    "ksql.logging.processing.rows.include": ("true", "whether errors of functions show the arguments"),
    "ksql.functions.collect_list.limit": ("", "the most elements of COLLECT_LIST"),
    "ksql.functions.collect_set.limit": ("", "the most elements of COLLECT_SET"),
    "ksql.nested.error.set.null": ("true", "whether an error within an expression is null in its place"),
    "ksql.fail.on.deserialization.error": ("false", "whether a record that cannot be read ends its query"),
    "ksql.query.pull.table.scan.enabled": ("true", "whether a pull query may read a whole table"),
}
_OTHERS = ("ksql.functions.", "ksql.query.", "ksql.streams.", "ksql.internal.", "ksql.udf")


def check_setting(name: str, value: str) -> None:
    """Refuse a setting that SET does not know, or whose value does not fit.

    Raises:
        ConfigError: There is no such setting, and the nearest is named; or the value is of the wrong type.

    >>> check_setting("auto.offset.reset", "latest")
    """
    if name in KNOWN or name == "use.exact.numeric.comparison":
        return
    if name.startswith("ksql.") and not name.startswith(STREAMS):
        if name.startswith(_OTHERS):
            return
        near = get_close_matches(name, KNOWN, 1, 0.6)
        hint = f"Did you mean {near[0]}?" if near else "SHOW PROPERTIES lists the settings."
        raise ConfigError(f"Unknown property: {name}", hint=hint)
    if name.startswith("__"):
        return
    StreamsConfig({name.removeprefix(STREAMS): value})


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """The settings of a session.

    Attributes:
        log: The URL of the topic log.
        service: The service id.
        statements: Settings that statements see, as SET sets them.
        app: Settings of all applications.
    """

    log: str
    service: str
    statements: Mapping[str, str]
    app: Mapping[str, Any]

    @classmethod
    def of(cls, config: Mapping[str, Any] | None) -> SessionSettings:
        """Read a config.

        Raises:
            ConfigError: A name is unknown, or a value is of the wrong type.

        >>> SessionSettings.of({"ksql.service.id": "shop_"}).application_id("CSAS_A_0")
        'shop_query_CSAS_A_0'
        """
        given = dict(config or {})
        log = str(given.pop("bootstrap.servers", DEFAULT_LOG))
        given.pop("application.id", None)
        statements = {name: str(given.pop(name)) for name in list(given) if name.startswith("ksql.")}
        for name, value in statements.items():
            check_setting(name, value)
        service = statements.get("ksql.service.id", KNOWN["ksql.service.id"][0])
        StreamsConfig({"application.id": f"{service}sql", "bootstrap.servers": log, **given})
        return cls(log, service, statements, given)

    def functions(self) -> UserFunctions:
        """Load the Python functions: of the modules that are named, and of installed packages.

        Raises:
            PenstockError: A module cannot be loaded, or a function in it is none of SQL.
        """
        named = self.statements.get("ksql.extension.modules", "").split(",")
        return load_functions(*(place.strip() for place in named if place.strip()), installed=True)

    def application_id(self, query_id: str) -> str:
        """The ``application.id`` of a query, made of the service id and the query's."""
        return f"{self.service}query_{query_id}"

    def app_settings(self, query_id: str, settings: Mapping[str, str]) -> dict[str, Any]:
        """The settings of the application of a query.

        Args:
            query_id: The id of the query.
            settings: What SET had set when the query was made; ``ksql.streams.`` is taken off.
        """
        own: dict[str, Any] = {}
        for name, value in settings.items():
            if name.startswith(STREAMS):
                own[name.removeprefix(STREAMS)] = value
            elif not name.startswith("ksql.") and name != "use.exact.numeric.comparison":
                own[name] = value
        fails = settings.get("ksql.fail.on.deserialization.error", "false").lower() == "true"
        return {
            "deserialization.exception.handler": "fail" if fails else "continue",
            **self.app,
            **own,
            "application.id": self.application_id(query_id),
            "bootstrap.servers": self.log,
        }
