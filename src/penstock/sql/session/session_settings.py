"""The settings of a session: its log, its service id, those of statements and those of applications."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.base.log_lines import own_logger
from penstock.base.nearest_name import did_you_mean
from penstock.base.properties import setting_text
from penstock.config import StreamsConfig
from penstock.errors import ConfigError
from penstock.sql.functions import UserFunctions, load_functions

__all__ = ["DEFAULT_LOG", "KNOWN", "SessionSettings", "check_setting", "has_effect"]

_log = own_logger(__name__)

DEFAULT_LOG = "penstock.db"
STREAMS = "ksql.streams."
REGISTRY = "ksql.schema.registry."
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
    "ksql.fail.on.deserialization.error": ("false", "whether a record that cannot be read ends its query"),
    "ksql.pull.queries.enable": ("true", "whether there are pull queries"),
    "ksql.query.pull.table.scan.enabled": ("true", "whether a pull query may read a whole table"),
    "ksql.query.pull.range.scan.enabled": ("true", "whether a pull query may read a range of keys"),
    "ksql.query.pull.limit.clause.enabled": ("true", "whether a pull query may have LIMIT"),
    "ksql.query.pull.stream.enabled": ("true", "whether a pull query may read a stream"),
    "ksql.source.table.materialization.enabled": ("true", "whether a pull query may read a source table"),
    "ksql.query.persistent.active.limit": ("", "the most persistent queries"),
    "ksql.insert.into.values.enabled": ("true", "whether there is INSERT INTO ... VALUES"),
    "ksql.create.or.replace.enabled": ("true", "whether there is CREATE OR REPLACE"),
    "ksql.suppress.enabled": ("true", "whether there is EMIT FINAL"),
    "ksql.lambdas.enabled": ("true", "whether there are lambda functions"),
    "ksql.headers.columns.enabled": ("true", "whether columns may hold headers"),
    "ksql.udfs.enabled": ("true", "whether Python functions are loaded"),
    "ksql.new.query.planner.enabled": ("false", "whether a query without more takes its key from SELECT"),
    "ksql.internal.topic.replicas": ("", "the replicas of internal topics, as replication.factor"),
}
FLAGS = frozenset(
    name for name, (default, meaning) in KNOWN.items() if default in ("true", "false") or meaning.startswith("whether")
)
NUMBERS = frozenset(name for name, (_, meaning) in KNOWN.items() if meaning.startswith(("the most", "the replicas")))
NUMBERS |= {"ksql.sink.partitions"}
# Settings of ksqlDB that have one value here, with the reason why there is no other.
FIXED: Mapping[str, tuple[str, str]] = {
    "ksql.nested.error.set.null": ("true", "an error within an expression is null in its place"),
    "ksql.cast.strings.preserve.nulls": ("true", "a null that is cast to text is null"),
    "ksql.fail.on.production.error": ("true", "a record that cannot be written ends its query"),
    "ksql.rowpartition.rowoffset.enabled": ("true", "all sources have ROWPARTITION and ROWOFFSET"),
    "ksql.query.push.v2.enabled": ("true", "push queries have one form"),
    "ksql.runtime.feature.shared.enabled": ("false", "each query is an application"),
    "ksql.persistent.prefix": ("query_", "ids of applications have one form"),
    "ksql.transient.prefix": ("transient_", "ids of queries have one form"),
    "ksql.create.topic.inherit.source.replicas.enabled": ("false", "ksql.sink.replicas says how many there are"),
    "ksql.access.validator.enable": ("off", "users and their rights are those of the broker and of the server"),
}
# Settings of ksqlDB that would do what is not done here: to ignore them would mislead.
REFUSED: Mapping[str, str] = {
    "ksql.connect.": "connectors are run by `penstock connect`",
    "ksql.extension.dir": "Java functions do not run here; ksql.extension.modules names Python functions",
    "ksql.security.": "the server has users and certificates; see docs/sql/server.md",
    "ksql.resource.extension.class": "Java classes do not run here",
    "ksql.hidden.topics": "topics cannot be hidden; give the server a user whose rights the broker bounds",
    "ksql.readonly.topics": "topics cannot be protected here; the broker's rights can",
    "ksql.properties.overrides.": "clients may set what statements may set",
    "ksql.query.pull.max.": "pull queries are not throttled",
    "ksql.metastore.backup.location": "the log keeps the statements, in a topic of their own",
}
# Settings of ksqlDB about its own workings, which change no result: accepted with a warning.
WITHOUT_EFFECT = (
    "ksql.internal.",
    "ksql.udf.",
    "ksql.metrics.",
    "ksql.queryanonymizer.",
    "ksql.error.classifier.",
    "ksql.shared.runtimes.",
    "ksql.suppress.buffer.",
    "ksql.query.pull.enable.standby.reads",
    "ksql.query.pull.interpreter.enabled",
    "ksql.query.pull.metrics.enabled",
    "ksql.query.pull.router.",
    "ksql.query.pull.thread.pool.",
    "ksql.query.pull.forwarding.",
    "ksql.query.pull.consistency.",
    "ksql.query.push.v2.",
    "ksql.query.retry.",
    "ksql.query.error.",
    "ksql.query.status.",
    "ksql.query.cleanup.",
    "ksql.query.persistent.max.bytes.",
    "ksql.query.transient.max.bytes.",
    "ksql.streams.shutdown.timeout.ms",
    "ksql.admin.",
    "ksql.authorization.cache.",
    "ksql.sink.window.change.log.additional.retention",
    "ksql.client.ip_port.",
    "ksql.proxy.protocol.",
    "ksql.websocket.",
)


def has_effect(name: str) -> bool:
    """Return whether a setting that `check_setting` accepts changes anything here."""
    return name in KNOWN or name in FIXED or not name.startswith(WITHOUT_EFFECT)


def check_setting(name: str, value: str) -> None:
    """Refuse a setting that SET does not know, or whose value does not fit.

    Raises:
        ConfigError: There is no such setting, and the nearest is named; or the value is of the wrong type.

    >>> check_setting("auto.offset.reset", "latest")
    """
    if name == "use.exact.numeric.comparison" or (name.startswith("ksql.functions.") and name not in KNOWN):
        return
    if name in FIXED:
        only, reason = FIXED[name]
        if value.lower() not in (only, ""):
            raise ConfigError(f"{name} is always {only} here: {reason}, not {value!r}", hint="Leave the setting out.")
        return
    if name in KNOWN:
        _check_value(name, value)
        return
    if name.startswith("ksql.") and (not name.startswith(STREAMS) or name.startswith(WITHOUT_EFFECT)):
        if name.startswith((REGISTRY, *WITHOUT_EFFECT)):
            return
        reason = next((text for begin, text in REFUSED.items() if name.startswith(begin)), "")
        if reason:
            raise ConfigError(f"{name} cannot be set: {reason}", hint="Leave the setting out.")
        hint = did_you_mean(name, KNOWN) or "SHOW PROPERTIES lists the settings."
        raise ConfigError(f"Unknown property: {name}", hint=hint)
    if name.startswith("__"):
        return
    StreamsConfig({name.removeprefix(STREAMS): value})


def _check_value(name: str, value: str) -> None:
    text = value.strip().lower()
    if not text:
        return
    if name in FLAGS and text not in ("true", "false"):
        raise ConfigError(f"{name} is true or false, not {value!r}")
    if name in NUMBERS and not text.removeprefix("-").isdigit():
        raise ConfigError(f"{name} is a whole number, not {value!r}")


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
        settings = dict(config or {})
        log = str(settings.pop("bootstrap.servers", DEFAULT_LOG))
        settings.pop("application.id", None)
        for name in [name for name in settings if name.startswith(REGISTRY)]:
            settings.setdefault(name.removeprefix("ksql."), settings.pop(name))
        statements = {name: setting_text(settings.pop(name)) for name in list(settings) if name.startswith("ksql.")}
        for name, value in statements.items():
            check_setting(name, value)
        if idle := sorted(name for name in statements if not has_effect(name)):
            _log.warning("settings of ksqlDB without effect here: %s", ", ".join(idle))
        service = statements.get("ksql.service.id", KNOWN["ksql.service.id"][0])
        StreamsConfig({"application.id": f"{service}sql", "bootstrap.servers": log, **settings})
        return cls(log, service, statements, settings)

    def functions(self) -> UserFunctions:
        """Load the Python functions: of the modules that are named, and of installed packages.

        Raises:
            PenstockError: A module cannot be loaded, or a function in it is none of SQL.
        """
        if self.statements.get("ksql.udfs.enabled", "true").lower() == "false":
            return UserFunctions()
        named = self.statements.get("ksql.extension.modules", "").split(",")
        return load_functions(*(module.strip() for module in named if module.strip()), installed=True)

    def application_id(self, query_id: str) -> str:
        """Return the ``application.id`` of a query, made of the service id and the query's."""
        return f"{self.service}query_{query_id}"

    def app_settings(self, query_id: str, settings: Mapping[str, str]) -> dict[str, Any]:
        """Return the settings of the application of a query.

        Args:
            query_id: The id of the query.
            settings: What SET had set when the query was made; ``ksql.streams.`` is taken off.
        """
        own: dict[str, Any] = {}
        for name, value in settings.items():
            if name.startswith(STREAMS) and has_effect(name):
                own[name.removeprefix(STREAMS)] = value
            elif name == "ksql.internal.topic.replicas":
                own["replication.factor"] = value
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
