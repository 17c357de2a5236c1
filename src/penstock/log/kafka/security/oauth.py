"""Tokens for OAUTHBEARER: of an identity provider with client credentials, of a cloud, or of a user's function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.base.identities import CachedTokens, ClientCredentials, identity_tokens
from penstock.config.prefixes import behind_prefix
from penstock.errors import ConfigError

__all__ = ["IDENTITY", "IdentitySource", "TokenProvider", "TokenSource", "tokens_of"]

IDENTITY = "penstock.kafka.identity"
_PREFIX = "sasl.oauthbearer."
_ENDPOINT = f"{_PREFIX}token.endpoint.url"
_CREDENTIALS = f"{_PREFIX}client.credentials.client."
_EXTENSION = "extension_"


class TokenProvider(Protocol):
    """A source of valid tokens; thread-safe."""

    @property
    def client_id(self) -> str:
        """Whose tokens they are, for messages."""
        ...

    @property
    def extensions(self) -> Mapping[str, str]:
        """SASL extensions for the broker."""
        ...

    def token(self) -> str:
        """Return the token; requests one if there is none or the last one expires soon.

        Raises:
            AuthenticationError: The provider refuses.
        """
        ...

    def librdkafka(self) -> dict[str, Any]:
        """Return the settings of librdkafka."""
        ...

    def login(self) -> dict[str, str]:
        """Return the options of Java's login module."""
        ...


def tokens_of(login: Mapping[str, str], settings: Mapping[str, str]) -> TokenProvider:
    """Return the source of tokens that the settings name.

    Args:
        login: Options of ``sasl.jaas.config``.
        settings: The other settings, by Java's names.

    Raises:
        ConfigError: A required setting is missing.
    """
    if settings.get(IDENTITY):
        return IdentitySource.of(login, settings)
    return TokenSource.of(login, settings)


def _extensions(login: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    own = (each.split("=", 1) for each in settings.get(f"{_PREFIX}extensions", "").split(",") if "=" in each)
    return {**behind_prefix(login, _EXTENSION), **{name.strip(): value.strip() for name, value in own}}


@dataclass(slots=True, repr=False)
class TokenSource:
    """The tokens of an identity provider, by client credentials.

    Args:
        endpoint: The provider's URL.
        client_id: The client's id.
        client_secret: The client's secret.
        scope: The requested scope; empty: the provider's default.
        extensions: SASL extensions for the broker.
        authorities: A PEM file with the trusted authorities of the endpoint; empty: the system's.
    """

    endpoint: str
    client_id: str
    client_secret: str
    scope: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)
    authorities: str = ""
    _tokens: CachedTokens = field(init=False)

    def __post_init__(self) -> None:
        credentials = ClientCredentials(
            self.endpoint, self.client_id, self.client_secret, self.scope, self.authorities, _ENDPOINT, _CREDENTIALS
        )
        self._tokens = CachedTokens(credentials.request)

    @classmethod
    def of(cls, login: Mapping[str, str], settings: Mapping[str, str]) -> TokenSource:
        """Read the settings; their credentials have precedence over the login module's, as in Java's clients.

        Args:
            login: Options of ``sasl.jaas.config``.
            settings: The other settings, by Java's names.

        Raises:
            ConfigError: A required setting is missing.
        """
        credentials = {
            _ENDPOINT: settings.get(_ENDPOINT, ""),
            f"{_CREDENTIALS}id": settings.get(f"{_CREDENTIALS}id") or login.get("clientId", ""),
            f"{_CREDENTIALS}secret": settings.get(f"{_CREDENTIALS}secret") or login.get("clientSecret", ""),
        }
        if missing := [name for name, value in credentials.items() if not value]:
            raise ConfigError(
                f"OAUTHBEARER needs {', '.join(missing)}",
                hint="These are the client credentials of an identity provider. For the identity of a cloud set "
                f"{IDENTITY} to aws, azure or google; for a function of your own, to module:function.",
                setting=missing[0],
            )
        return cls(
            endpoint=credentials[_ENDPOINT],
            client_id=credentials[f"{_CREDENTIALS}id"],
            client_secret=credentials[f"{_CREDENTIALS}secret"],
            scope=settings.get(f"{_PREFIX}scope") or login.get("scope", ""),
            extensions=_extensions(login, settings),
            authorities=settings.get("https.ca.location", ""),
        )

    def librdkafka(self) -> dict[str, Any]:
        """Return the settings of librdkafka, which requests tokens itself."""
        config = {
            f"{_PREFIX}method": "oidc",
            _ENDPOINT: self.endpoint,
            f"{_PREFIX}client.id": self.client_id,
            f"{_PREFIX}client.secret": self.client_secret,
            f"{_PREFIX}scope": self.scope,
            f"{_PREFIX}extensions": ",".join(f"{name}={value}" for name, value in self.extensions.items()),
            "https.ca.location": self.authorities,
        }
        return {name: value for name, value in config.items() if value}

    def login(self) -> dict[str, str]:
        """Return the options of Java's login module."""
        options = {"clientId": self.client_id, "clientSecret": self.client_secret, "scope": self.scope}
        options |= {f"{_EXTENSION}{name}": value for name, value in self.extensions.items()}
        return {name: value for name, value in options.items() if value}

    def token(self) -> str:
        """Return the token; requests one if there is none or the last one expires soon.

        Raises:
            AuthenticationError: The provider refuses.
        """
        return self._tokens.get().text


@dataclass(frozen=True, slots=True, repr=False)
class IdentitySource:
    """The tokens of an identity by name: of a cloud, or of a user's function.

    Args:
        client_id: Its name: the value of ``penstock.kafka.identity``.
        extensions: SASL extensions for the broker.
        tokens: This process's tokens.
    """

    client_id: str
    extensions: Mapping[str, str]
    tokens: CachedTokens

    @classmethod
    def of(cls, login: Mapping[str, str], settings: Mapping[str, str]) -> IdentitySource:
        """Read the settings; see `tokens_of`."""
        name = settings[IDENTITY].strip()
        options = behind_prefix(settings, f"{IDENTITY}.")
        return cls(name, _extensions(login, settings), identity_tokens(name, options, IDENTITY))

    def librdkafka(self) -> dict[str, Any]:
        """Return the settings of librdkafka, which calls back for each token, before the last one ends."""

        def token(_: str) -> tuple[str, float, str, dict[str, str]]:
            current = self.tokens.get()
            return current.text, current.ends_s, "", dict(self.extensions)

        return {"oauth_cb": token}

    def login(self) -> dict[str, str]:
        """Return no options: a JVM has login modules of its own for clouds."""
        return {}

    def token(self) -> str:
        """Return the token; see `TokenProvider`."""
        return self.tokens.get().text
