"""The settings of schema serdes: Kafka's names, passed to the serde or set in the application's config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from penstock.base.argument_checks import check_mapping
from penstock.base.secrets import resolved
from penstock.errors import ConfigError

__all__ = ["IDENTITY", "REGISTRY_PREFIXES", "SchemaSettings", "Strategy"]

Strategy = str | Callable[[str | None, str | None, str | None], str | None]

_STRATEGIES = {
    "topic": "topic",
    "topicname": "topic",
    "record": "record",
    "recordname": "record",
    "topicrecord": "topic_record",
    "topicrecordname": "topic_record",
}
_OWN = (
    "auto.register.schemas",
    "use.latest.version",
    "use.schema.id",
    "normalize.schemas",
    "json.fail.invalid.schema",
    "key.subject.name.strategy",
    "value.subject.name.strategy",
    "key.schema.id.serializer",
    "value.schema.id.serializer",
)
_IN_CONFIG = frozenset({*_OWN, "latest.cache.ttl.sec"})  # without the prefix of the registry
# Java's names of what the registry's client has its own names for.
_CLIENT_NAMES = {
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.keystore.location": "ssl.certificate.location",
    "latest.cache.ttl.sec": "cache.latest.ttl.sec",
}
_SOURCE = "basic.auth.credentials.source"
_SOURCES = ("USER_INFO", "URL")
_USER_INFO = "basic.auth.user.info"
_BEARER_SOURCE = "bearer.auth.credentials.source"
_BEARER_SOURCES = ("OAUTHBEARER", "OAUTHBEARER_AZURE_IMDS", "STATIC_TOKEN", "CUSTOM")
_JAVA_ONLY = ("ssl.truststore.type", "ssl.keystore.type", _SOURCE)
IDENTITY = "penstock.registry.identity"
_CREDENTIALS = {"basic.auth.": (_SOURCE, _USER_INFO), "bearer.auth.": (_BEARER_SOURCE,), IDENTITY: (IDENTITY,)}
_CLIENT_PREFIXES = ("basic.auth.", "bearer.auth.", "ssl.", f"{IDENTITY}.")
_BARE_PREFIXES = ("basic.auth.", "bearer.auth.", "penstock.registry.")  # without the prefix of the registry
_NUMBERS = {"timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms", "cache.latest.ttl.sec"}
_PREFIX = "schema.registry."
REGISTRY_PREFIXES = (_PREFIX, *_BARE_PREFIXES)


@dataclass(frozen=True, slots=True)
class SchemaSettings:
    """The settings passed, by Kafka's names; equal settings make equal serdes.

    >>> SchemaSettings.of("http://localhost:8081").url
    'http://localhost:8081'
    """

    given: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, registry: str | Mapping[str, Any] | None) -> SchemaSettings:
        """Return the settings of a URL or of names and values.

        Raises:
            ConfigError: A name is unknown, or a value is none that the setting can have.
        """
        if registry is not None and not isinstance(registry, str):
            check_mapping(registry, "registry", ConfigError)
        settings = {"url": registry} if isinstance(registry, str) else dict(registry or {})
        read = {_plain(name): value for name, value in settings.items()}
        unknown = [name for name in read if not _is_known(name)]
        if unknown:
            raise ConfigError(
                f"there is no setting {unknown[0]!r} of schema serdes",
                hint=f"Known: schema.registry.url, {', '.join(_OWN)}, basic.auth.*, bearer.auth.*, "
                f"{IDENTITY}, schema.registry.ssl.*.",
            )
        _check_sources(read)
        schema_settings = cls(tuple(sorted(read.items(), key=lambda pair: pair[0])))
        for part in ("key", "value"):
            schema_settings.strategy(part)
            schema_settings.framing(part)
        return schema_settings

    def with_defaults(self, config: Mapping[str, Any]) -> SchemaSettings:
        """Return these settings over those of an application: StreamsConfig's ``given``."""
        own = dict(self.given)
        defaults = {}
        for name, value in config.items():
            plain = name.removeprefix(_PREFIX)
            prefixed = plain != name or name.startswith(_BARE_PREFIXES)
            if value is not None and (name in _IN_CONFIG or (prefixed and _is_known(plain))):
                defaults[plain] = value
        kind = _kind_of_credentials(own)
        others = () if kind is None else tuple(each for each in _CREDENTIALS if each != kind)
        checked = SchemaSettings.of(defaults).as_dict() if defaults else {}
        merged = {**{name: value for name, value in checked.items() if not name.startswith(others)}, **own}
        return self if merged == own else replace(self, given=tuple(sorted(merged.items(), key=lambda pair: pair[0])))

    def as_dict(self) -> dict[str, Any]:
        return dict(self.given)

    def get(self, name: str, default: Any = None) -> Any:
        return next((value for key, value in self.given if key == name), default)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.get(name, default)
        return value.strip().lower() == "true" if isinstance(value, str) else bool(value)

    @property
    def url(self) -> str | None:
        url = self.get("url")
        return None if url is None else str(url)

    def strategy(self, part: str) -> Strategy:
        """Return the naming of subjects: "topic", "record", "topic_record", or a function (topic, part, record)."""
        strategy = self.get(f"{part}.subject.name.strategy", "topic")
        if callable(strategy):
            return strategy  # type: ignore[no-any-return]
        text = str(strategy).rpartition(".")[2].replace("_", "").lower().removesuffix("strategy")
        if text not in _STRATEGIES:
            raise ConfigError(
                f"{strategy!r} is not a strategy for subject names",
                hint='Use "topic", "record", "topic_record", Kafka\'s class names, or a function.',
            )
        return _STRATEGIES[text]

    def framing(self, part: str) -> str:
        """Return the place of the schema's id: "prefix" or "header"."""
        text = str(self.get(f"{part}.schema.id.serializer", "prefix")).rpartition(".")[2]
        plain = text.removesuffix("SchemaIdSerializer").lower()
        if plain not in {"prefix", "header"}:
            raise ConfigError(
                f"{text!r} is not a place for schema ids", hint='Use "prefix", "header", or Kafka\'s class names.'
            )
        return plain

    def client(self) -> dict[str, Any]:
        """Return the settings of the registry's client, by its own names."""
        conf = {
            name: float(value) if name in _NUMBERS else _looked_up(name, value)
            for name, value in ((_CLIENT_NAMES.get(own, own), value) for own, value in self.given)
            if name not in _OWN and name not in _JAVA_ONLY
        }
        for kind in ("truststore", "keystore"):
            if self.get(f"ssl.{kind}.location") and str(self.get(f"ssl.{kind}.type", "PEM")).upper() != "PEM":
                raise ConfigError(
                    f"schema.registry.ssl.{kind}.type is {self.get(f'ssl.{kind}.type')}, and only PEM can be read",
                    hint="Convert the store (keytool -exportcert -rfc) and set the type to PEM.",
                )
        conf.pop("ssl.truststore.password", None)
        if self.get(_SOURCE) == "URL":
            conf.pop(_USER_INFO, None)
        if source := self.get(_BEARER_SOURCE):  # the registry's client asks for what only Confluent Cloud has
            conf = {"bearer.auth.logical.cluster": "", **conf}
            conf |= {"bearer.auth.scope": conf.get("bearer.auth.scope", "")} if source == "OAUTHBEARER" else {}
        return conf

    def __repr__(self) -> str:
        return f"SchemaSettings({', '.join(name for name, _ in self.given)})"  # values may be secrets


def _kind_of_credentials(settings: Mapping[str, Any]) -> str | None:
    """Return what the names of these credentials begin with, or the setting that has them; None: there are none."""
    for kind, names in _CREDENTIALS.items():
        if any(settings.get(name) for name in names):
            return kind
    return "url" if urlsplit(str(settings.get("url") or "")).username else None


def _check_sources(settings: Mapping[str, Any]) -> None:
    """Raise ConfigError if what names the credentials is not obeyed, or if there are credentials of two kinds."""
    source, bearer, identity = settings.get(_SOURCE), settings.get(_BEARER_SOURCE), settings.get(IDENTITY)
    if source and source not in _SOURCES:
        raise ConfigError(
            f"{_SOURCE} is {source}, which is not supported",
            hint=f"Set it to USER_INFO, and {_USER_INFO} to user:password of the registry.",
            setting=_SOURCE,
        )
    if source == "USER_INFO" and not settings.get(_USER_INFO):
        raise ConfigError(
            f"{_SOURCE} is USER_INFO, and there is no {_USER_INFO}",
            hint="Set it to user:password of the registry.",
            setting=_USER_INFO,
        )
    if bearer and bearer not in _BEARER_SOURCES:
        raise ConfigError(
            f"{_BEARER_SOURCE} is {bearer}, which is not supported",
            hint=f"Known: {', '.join(_BEARER_SOURCES)}; or set {IDENTITY}.",
            setting=_BEARER_SOURCE,
        )
    kinds = [
        name
        for name, value in ((_USER_INFO, settings.get(_USER_INFO)), (_BEARER_SOURCE, bearer), (IDENTITY, identity))
        if value
    ]
    if len(kinds) > 1:
        raise ConfigError(
            f"{kinds[0]} and {kinds[1]} are both set", hint="A registry takes one of them.", setting=kinds[1]
        )
    if identity == "aws":
        raise ConfigError(
            f"{IDENTITY} is aws, whose tokens are for MSK's brokers alone",
            hint="Known: azure, google, or module:function.",
            setting=IDENTITY,
        )


def _looked_up(name: str, value: Any) -> Any:
    """Return the value of a reference such as ``${env:REGISTRY_USER}``, in the process that connects."""
    return resolved(name, value) if isinstance(value, str) else value


def _plain(name: str) -> str:
    return name.removeprefix(_PREFIX)


def _is_known(name: str) -> bool:
    is_exact_name = name in {"url", "proxy", IDENTITY} or name in _OWN or name in _CLIENT_NAMES or name in _NUMBERS
    return is_exact_name or name.startswith(_CLIENT_PREFIXES)
