"""The settings of workers, Java's ``.properties`` files, config providers."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from penstock.base.log_lines import own_logger
from penstock.base.nearest_name import mistyped, question
from penstock.config.client_names import CLIENT_NAMES, check_client_name
from penstock.config.prefixes import behind_prefix
from penstock.connect.config import ConfigDef, Kind, Model, OneOf, Range, Refused, Setting
from penstock.connect.data import SettingError
from penstock.connect.plugins import NameCheck, Plugins, WorkerSettings, check_converter
from penstock.errors import ConfigError

__all__ = [
    "WORKER_MODEL",
    "Mode",
    "Providers",
    "WorkerConfig",
    "config_providers",
    "known_client_settings",
    "parse_properties",
    "read_properties",
    "worker_definition",
]

# Files of properties

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"
_UNICODE_DIGITS = 4
_MOST_BYTES = 1 << 20


def parse_properties(text: str) -> dict[str, str]:
    r"""Read the settings of a file's text, as ``java.util.Properties`` does.

    >>> parse_properties("# worker\nname = one\nfile: /var/log/\\\n  access.log\nempty\n")
    {'name': 'one', 'file': '/var/log/access.log', 'empty': ''}
    """
    properties = {}
    for line in _logical_lines(text):
        end = _end_of_name(line)
        name, rest = line[:end], line[end:].lstrip(_BLANKS)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANKS)
        properties[_unescaped(name)] = _unescaped(rest)
    return properties


def read_properties(path: Path) -> dict[str, str]:
    """Read a file of settings.

    Raises:
        ConfigError: The file cannot be read, or is not such a file.
    """
    try:
        data = path.read_bytes()[: _MOST_BYTES + 1]
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}", hint="Give the path of a .properties file."
        ) from error
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"{path} has more than {_MOST_BYTES:,} bytes", hint="Give the path of a .properties file.")
    try:
        return parse_properties(data.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8: {error}", hint="Save it as UTF-8.") from error


def _logical_lines(text: str) -> Iterator[str]:
    """Return lines without comments; a backslash at the end joins a line with the next."""
    waiting: str | None = None
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(_BLANKS)
        if waiting is None and (not line or line[0] in "#!"):
            continue
        line = (waiting or "") + line
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            waiting = line[:-1]
            continue
        waiting = None
        yield line
    if waiting is not None:
        yield waiting


def _end_of_name(line: str) -> int:
    at = 0
    while at < len(line) and line[at] not in "=: \t\f":
        at += 2 if line[at] == "\\" else 1
    return min(at, len(line))


def _unescaped(text: str) -> str:
    characters, at = [], 0
    while at < len(text):
        character = text[at]
        at += 1
        if character != "\\" or at == len(text):
            characters.append(character)
            continue
        escaped = text[at]
        at += 1
        if escaped != "u":
            characters.append(_ESCAPES.get(escaped, escaped))
            continue
        digits = text[at : at + _UNICODE_DIGITS]
        try:
            characters.append(chr(int(digits, 16)))
        except ValueError as error:
            raise ConfigError(
                f"\\u{digits} is not a character", hint="Four hexadecimal digits follow \\u in .properties files."
            ) from error
        at += _UNICODE_DIGITS
    return "".join(characters)


# Config providers

_REFERENCE = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")
_PACKAGE = "org.apache.kafka.common.config.provider."
Lookup = Callable[[str, str], str | None]


@dataclass(frozen=True, slots=True)
class Providers:
    """The config providers of a worker, by name.

    Example:
        >>> providers = Providers({"env": lambda path, key: {"TOPIC": "lines"}.get(key)})
        >>> providers.resolve({"topic": "${env:TOPIC}", "file": "${other:x:y}"})
        {'topic': 'lines', 'file': '${other:x:y}'}
    """

    lookups: Mapping[str, Lookup] = field(default_factory=dict)

    def resolve(self, config: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return the config with the values that its references stand for; those that are not found stay as they are.

        Raises:
            SettingError: A file cannot be read.
        """
        if not self.lookups:
            return dict(config)
        return {name: value if value is None else _REFERENCE.sub(self._value, value) for name, value in config.items()}

    def _value(self, match: re.Match[str]) -> str:
        lookup = self.lookups.get(match[1])
        value = None if lookup is None else lookup(match[3] or "", match[4])
        return match[0] if value is None else value


def config_providers(settings: Mapping[str, str]) -> Providers:
    """Return the providers that a worker's settings name.

    ``config.providers=file``, ``config.providers.file.class=...``.

    Raises:
        ConfigError: A class is unknown or missing.
    """
    names = [name.strip() for name in settings.get("config.providers", "").split(",") if name.strip()]
    lookups = {}
    for name in names:
        prefix = f"config.providers.{name}."
        java_class = settings.get(f"{prefix}class", "")
        make = _PROVIDERS.get(java_class.removeprefix(_PACKAGE))
        if make is None:
            raise ConfigError(
                f"{prefix}class is {java_class!r}, which is not a config provider that this worker has",
                hint=f"It has {', '.join(_PACKAGE + kind for kind in _PROVIDERS)}.",
            )
        lookups[name] = make(behind_prefix(settings, prefix))
    return Providers(lookups)


def _file_provider(parameters: Mapping[str, str]) -> Lookup:
    allowed = _allowed_paths(parameters)

    def lookup(path: str, key: str) -> str | None:
        if not path or not allowed(path):
            return None
        try:
            return parse_properties(Path(path).read_text()).get(key)
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError(f"Could not read properties from file {path}") from error

    return lookup


def _directory_provider(parameters: Mapping[str, str]) -> Lookup:
    allowed = _allowed_paths(parameters)

    def lookup(path: str, key: str) -> str | None:
        folder = Path(path)
        if not path or not allowed(path) or not folder.is_dir():
            return None
        if Path(key).name != key or not (folder / key).is_file():
            return None
        try:
            return (folder / key).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError(f"Could not read file {folder / key} for property {key}") from error

    return lookup


def _environment_provider(parameters: Mapping[str, str]) -> Lookup:
    pattern = re.compile(parameters.get("param.allowlist.pattern", ".*"))

    def lookup(path: str, key: str) -> str | None:
        return None if path or not pattern.fullmatch(key) else os.environ.get(key)

    return lookup


def _allowed_paths(parameters: Mapping[str, str]) -> Callable[[str], bool]:
    roots = [Path(part.strip()).resolve() for part in parameters.get("param.allowed.paths", "").split(",") if part]
    return lambda path: not roots or any(Path(path).resolve().is_relative_to(root) for root in roots)


_PROVIDERS: dict[str, Callable[[Mapping[str, str]], Lookup]] = {
    "FileConfigProvider": _file_provider,
    "DirectoryConfigProvider": _directory_provider,
    "EnvVarConfigProvider": _environment_provider,
}


# Settings of workers

Mode = Literal["distributed", "standalone"]
_log = own_logger(__name__)
_KINDS = frozenset({"producer", "consumer", "admin"})
_CLIENT = re.compile(r"(?:(?:producer|consumer|admin)\.)?(?:security|sasl|ssl)\..*|(?:producer|consumer|admin)\..*")
_SIMPLE_HEADERS = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
_PLAIN_PORT = 8083
_HTTPS = "Set ssl.certificate.file, ssl.key.file and ssl.ca.file: files of PEM."
_KEYS = "Requests between workers are signed with HmacSHA256."
_METRICS = "the metrics of a worker are at /penstock/metrics, for Prometheus."
_MEMBERS = "a worker's share of the tasks follows the configs at once."

WORKER_MODEL = Model(
    "Kafka Connect's workers",
    refused={
        "rest.extension.classes": "Set penstock.users.file for users with passwords; other extensions do not run here.",
        "listeners.https.": _HTTPS,
        "admin.listeners.": _HTTPS,
        "ssl.client.auth": Refused("Clients are known by penstock.users.file.", unless=("none",)),
        "inter.worker.key.generation.algorithm": Refused(_KEYS, unless=("HmacSHA256",)),
        "inter.worker.signature.algorithm": Refused(_KEYS, unless=("HmacSHA256",)),
        "inter.worker.verification.algorithms": Refused(_KEYS, unless=("HmacSHA256",)),
        "internal.key.converter": "The internal topics hold JSON, as Kafka Connect has it since 2.0.",
        "internal.value.converter": "The internal topics hold JSON, as Kafka Connect has it since 2.0.",
    },
    idle={
        "auto.include.jmx.reporter": _METRICS,
        "metric.reporters": _METRICS,
        "metrics.": _METRICS,
        "connect.protocol": "tasks move one by one, and requests between workers are signed.",
        "inter.worker.key.size": "keys have the size of their algorithm.",
        "plugin.discovery": "plugins are Python's: plugin.path and installed packages.",
        "worker.sync.timeout.ms": _MEMBERS,
        "worker.unsync.backoff.ms": _MEMBERS,
        "rebalance.timeout.ms": _MEMBERS,
        "scheduled.rebalance.max.delay.ms": "others take the tasks of a worker when its session has ended: see "
        "session.timeout.ms.",
        "offset.flush.timeout.ms": "offsets are written with the records, in one transaction.",
        "rest.advertised.listener": "workers know each other by the scheme of listeners.",
        "receive.buffer.bytes": "the system chooses the sizes of its buffers.",
        "send.buffer.bytes": "the system chooses the sizes of its buffers.",
        "socket.connection.setup.timeout.max.ms": "a connection is tried again until the log answers.",
    },
)


def _text(name: str, default: Any = None, **more: Any) -> Setting:
    return Setting(name=name, kind=more.pop("kind", Kind.STRING), default=default, **more)


def _required(name: str, kind: Kind = Kind.STRING) -> Setting:
    return Setting(name=name, kind=kind)


_COMMON = (
    _text("bootstrap.servers", "localhost:9092"),
    _required("key.converter"),
    _required("value.converter"),
    _text("header.converter", _SIMPLE_HEADERS),
    _text("listeners", "", kind=Kind.LIST),
    _text("admin.listeners", None, kind=Kind.LIST),
    _text("rest.host.name"),  # until Kafka 2.x, and in most tutorials
    _text("rest.port", None, kind=Kind.INT),
    _text("rest.advertised.host.name"),
    _text("rest.advertised.port", None, kind=Kind.INT),
    _text("rest.advertised.listener"),
    _text("access.control.allow.origin", ""),
    _text("access.control.allow.methods", ""),
    _text("response.http.headers.config", ""),
    _text("offset.flush.interval.ms", "60000", kind=Kind.LONG),
    _text("offset.flush.timeout.ms", "5000", kind=Kind.LONG),
    _text("task.shutdown.graceful.timeout.ms", "5000", kind=Kind.LONG),
    _text("plugin.path", "", kind=Kind.LIST),
    _text("topic.tracking.enable", "true", kind=Kind.BOOLEAN),
    _text("topic.tracking.allow.reset", "true", kind=Kind.BOOLEAN),
    _text("topic.creation.enable", "true", kind=Kind.BOOLEAN),
    _text("connector.client.config.override.policy", "All"),
    _text("connector.client.config.override.allowlist", "", kind=Kind.LIST),
    _text("config.providers", "", kind=Kind.LIST),
    _text("rest.hide.passwords", "false", kind=Kind.BOOLEAN),
    _text("penstock.users.file"),
    _text("ssl.certificate.file"),
    _text("ssl.key.file"),
    _text("ssl.ca.file"),
    _text("delivery.guarantee", "exactly_once", rule=OneOf(("exactly_once", "at_least_once"))),
)
_DISTRIBUTED = (
    _required("group.id"),
    _required("config.storage.topic"),
    _required("offset.storage.topic"),
    _required("status.storage.topic"),
    _text("offset.storage.partitions", "25", kind=Kind.INT, rule=Range(1)),
    _text("status.storage.partitions", "5", kind=Kind.INT, rule=Range(1)),
    _text("config.storage.replication.factor", "3", kind=Kind.SHORT),
    _text("offset.storage.replication.factor", "3", kind=Kind.SHORT),
    _text("status.storage.replication.factor", "3", kind=Kind.SHORT),
    _text("session.timeout.ms", "10000", kind=Kind.INT),
    _text("heartbeat.interval.ms", "3000", kind=Kind.INT),
    _text("rebalance.timeout.ms", "60000", kind=Kind.INT),
    _text("scheduled.rebalance.max.delay.ms", "30000", kind=Kind.INT),
    _text("exactly.once.source.support", "disabled", rule=OneOf(("disabled", "enabled", "preparing"))),
    _text("inter.worker.key.ttl.ms", "3600000", kind=Kind.INT),
    _text("tasks.in.process", "false", kind=Kind.BOOLEAN),
)
_STANDALONE = (
    _required("offset.storage.file.filename"),
    _text("tasks.in.process", "true", kind=Kind.BOOLEAN),  # as in Java: one process, which a debugger can follow
)
# What stands behind them is for converters, providers, listeners, topics and reporters to know.
_OPEN_ENDED = (
    "key.converter.", "value.converter.", "header.converter.", "config.providers.", "config.storage.",
    "offset.storage.", "status.storage.",
)  # fmt: skip


def worker_definition(mode: Mode) -> ConfigDef:
    """Return the settings of a worker of this mode that Penstock knows; others are passed over with a warning."""
    return ConfigDef([*_COMMON, *(_DISTRIBUTED if mode == "distributed" else _STANDALONE)])


def known_client_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return those settings that a client of the log knows: Java's clients pass over the others.

    >>> known_client_settings({"producer.linger.ms": "5", "admin.listeners": "http://:8080"})
    {'producer.linger.ms': '5'}
    """
    client_settings = {}
    for name, value in settings.items():
        try:
            check_client_name(name)
        except ConfigError:
            continue
        client_settings[name] = value
    return client_settings


def _worker_names() -> set[str]:
    return {each.name for each in (*_COMMON, *_DISTRIBUTED, *_STANDALONE)} | _of_kafka()


def _of_kafka() -> set[str]:
    """Return the names of settings that Kafka's workers have and Penstock's do not."""
    return {name for name in (*WORKER_MODEL.refused, *WORKER_MODEL.idle) if not name.endswith(".")}


def _all_names() -> set[str]:
    """List the names of all settings that may stand in a worker's file."""
    prefixed = {f"{kind}.{one.name}" for one in CLIENT_NAMES.values() for kind in one.clients}
    return _worker_names() | CLIENT_NAMES.keys() | prefixed


def _is_settled(name: str) -> bool:
    kind, _, rest = name.partition(".")
    return name in CLIENT_NAMES or (kind in _KINDS and rest in CLIENT_NAMES)


def _unknown_names(settings: Mapping[str, str]) -> list[str]:
    names = _worker_names() | CLIENT_NAMES.keys()

    def is_known(name: str) -> bool:
        return name in names or _is_settled(name) or name.startswith(_OPEN_ENDED) or WORKER_MODEL.has(name)

    return [name for name in settings if not is_known(name)]


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """The settings of a worker.

    Attributes:
        mode: ``distributed`` or ``standalone``.
        given: The settings as they were given.
        values: The parsed settings, with the defaults.

    Example:
        >>> config = WorkerConfig.of(
        ...     {
        ...         "bootstrap.servers": "sqlite:///connect.db",
        ...         "offset.storage.file.filename": "offsets",
        ...         "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        ...         "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        ...         "rest.port": "8090",
        ...     },
        ...     "standalone",
        ... )
        >>> config.address
        ('', 8090)
    """

    mode: Mode
    given: Mapping[str, str]
    values: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, properties: Mapping[str, str], mode: Mode) -> WorkerConfig:
        """Parse the settings.

        Settings of an unknown name have no effect, as in Kafka, and are named in a warning; but a name that is one or
        two letters off is refused.

        Raises:
            ConfigError: One is missing or wrong, or has a mistyped name.
        """
        unknown = _unknown_names(properties)
        for name in (each for each in properties if not _is_settled(each)):
            if meant := mistyped(name, _all_names() if name in unknown else _worker_names()):
                raise ConfigError(f"a Connect worker has no setting {name!r}", hint=question(meant), setting=name)
        if unknown:
            _log.warning("these settings are not known to a Connect worker, and have no effect: %s", ", ".join(unknown))
        for name, value in properties.items():
            if sentence := WORKER_MODEL.refusal(name, value, "worker"):
                raise ConfigError(f"the worker's settings: {sentence}", setting=name)
        try:
            values = worker_definition(mode).parse(properties)
        except SettingError as error:
            raise ConfigError(f"the worker's settings: {error.message}", hint="See docs/connect/operate.md.") from error
        config = cls(mode, dict(properties), values)
        config.address  # noqa: B018 - a wrong listener is an error now
        return config

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @property
    def distributed(self) -> bool:
        """Whether it shares its work with other workers of its group."""
        return self.mode == "distributed"

    @property
    def log_url(self) -> str:
        """The log: brokers, or the URL of an embedded log."""
        return str(self.values["bootstrap.servers"])

    def topic_settings(self, store: str) -> dict[str, str]:
        """Return the settings of a topic that the worker creates: of ``config``, ``offset`` or ``status``.

        ``replication.factor`` counts if it is set; else the brokers' default does.
        """
        own = behind_prefix(self.given, f"{store}.storage.")
        return {name: value for name, value in own.items() if name not in ("topic", "partitions", "cleanup.policy")}

    def check_plugins(self, plugins: Plugins) -> None:
        """Refuse converters that are not there.

        Raises:
            SettingError: There is no such class.
        """
        for name in ("key.converter", "value.converter", "header.converter"):
            value = self.values[name].strip()
            try:
                plugins.find(value)
            except (LookupError, ConfigError) as error:
                raise SettingError.invalid(name, value, f"Class {value} could not be found.") from error

    def notes(self, plugins: Plugins) -> list[str]:
        """Return what a worker says when it starts: which of its settings have no effect, and why."""
        idle_notes = [note for name in self.given if (note := WORKER_MODEL.idleness(name))]
        clients = ("producer.", "consumer.", "admin.", "security.", "sasl.", "ssl.")
        idle_notes += [
            f"{name} has no effect: write it as producer.{name}, consumer.{name} or admin.{name}"
            for name in self.given
            if name in CLIENT_NAMES and not (name in self.values or name.startswith(clients) or WORKER_MODEL.has(name))
        ]
        check = NameCheck()
        for converter in ("key.converter", "value.converter", "header.converter"):
            check_converter(check, self.given, converter, plugins)
        return [*idle_notes, *check.refused.values(), *check.notes]

    @property
    def client_settings(self) -> dict[str, str]:
        """The settings of the clients of the log; as with Java's clients, unknown ones are passed over."""
        return known_client_settings({name: each for name, each in self.given.items() if _CLIENT.fullmatch(name)})

    @property
    def address(self) -> tuple[str, int]:
        """The host and port to listen on; an empty host is every address.

        Raises:
            ConfigError: The listener is none that can be served.
        """
        listeners = [each for each in self.values["listeners"] if each]
        if not listeners:
            port = self.values["rest.port"]  # 0 is any free port
            return self.values["rest.host.name"] or "", _PLAIN_PORT if port is None else port
        parts = urlsplit(listeners[0])
        try:
            port = parts.port
        except ValueError:
            port = None
        if parts.scheme.lower() not in ("http", "https") or port is None:
            raise ConfigError(f"listeners={listeners[0]!r} is not a listener", hint="For example http://0.0.0.0:8083")
        return parts.hostname or "", port

    @property
    def secure(self) -> bool:
        """Whether it serves HTTPS."""
        return any(each.lower().startswith("https:") for each in self.values["listeners"])

    def worker_id(self, port: int) -> str:
        """Return the ``host:port`` by which other workers and clients know it."""
        host, _ = self.address
        name = self.values["rest.advertised.host.name"] or (host if host not in ("", "0.0.0.0", "::") else "")  # noqa: S104 - compared
        return f"{name or socket.gethostname()}:{self.values['rest.advertised.port'] or port}"

    @property
    def plugin_settings(self) -> WorkerSettings:
        """The settings that validation of connectors needs."""
        exactly_once = self.distributed and self.values["exactly.once.source.support"] == "enabled"
        return WorkerSettings(
            self.values["key.converter"],
            self.values["value.converter"],
            self.values["header.converter"],
            exactly_once,
            self.distributed,
        )
