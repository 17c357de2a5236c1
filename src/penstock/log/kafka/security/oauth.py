"""Tokens for OAUTHBEARER: requested from the identity provider with client credentials, and cached."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.config.prefixes import behind_prefix
from penstock.errors import AuthenticationError, ConfigError

__all__ = ["TokenSource"]

_PREFIX = "sasl.oauthbearer."
_ENDPOINT = f"{_PREFIX}token.endpoint.url"
_CREDENTIALS = f"{_PREFIX}client.credentials.client."
_TIMEOUT_S = 10.0
_OF_LIFETIME = 0.8  # a token is renewed well before it ends
_DEFAULT_LIFETIME_S = 60.0


@dataclass(slots=True, repr=False)
class TokenSource:
    """A source of valid tokens; thread-safe.

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
    _token: str = ""
    _renew_at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

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
                hint="Only the client credentials grant of an identity provider is supported.",
                setting=missing[0],
            )
        own = (each.split("=", 1) for each in settings.get(f"{_PREFIX}extensions", "").split(",") if "=" in each)
        of_java = behind_prefix(login, "extension_")
        return cls(
            endpoint=credentials[_ENDPOINT],
            client_id=credentials[f"{_CREDENTIALS}id"],
            client_secret=credentials[f"{_CREDENTIALS}secret"],
            scope=settings.get(f"{_PREFIX}scope") or login.get("scope", ""),
            extensions={**of_java, **{name.strip(): value.strip() for name, value in own}},
            authorities=settings.get("https.ca.location", ""),
        )

    def librdkafka(self) -> dict[str, str]:
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
        options |= {f"extension_{name}": value for name, value in self.extensions.items()}
        return {name: value for name, value in options.items() if value}

    def token(self) -> str:
        """Return the token; requests one if there is none or the last one expires soon.

        Raises:
            AuthenticationError: The provider refuses.
        """
        with self._lock:
            if time.monotonic() >= self._renew_at:
                answer = self._ask()
                self._token = str(answer["access_token"])
                self._renew_at = time.monotonic() + _OF_LIFETIME * float(answer.get("expires_in", _DEFAULT_LIFETIME_S))
            return self._token

    def _ask(self) -> dict[str, Any]:
        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        pair = f"{self.client_id}:{self.client_secret}".encode()
        request = urllib.request.Request(  # noqa: S310 - the scheme is checked below
            self.endpoint,
            urllib.parse.urlencode(form).encode(),
            {"Authorization": f"Basic {base64.b64encode(pair).decode()}", "Accept": "application/json"},
        )
        if request.type not in ("http", "https"):
            raise ConfigError(f"{_ENDPOINT} is {self.endpoint}", hint="It begins with https://", setting=_ENDPOINT)
        context = ssl.create_default_context(cafile=self.authorities or None) if request.type == "https" else None
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=context) as reply:  # noqa: S310
                answer: dict[str, Any] = json.load(reply)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(f"{error.code} {_error_text(error.read())}".rstrip()) from error
        except (OSError, ValueError) as error:
            raise self._refused(str(getattr(error, "reason", error))) from error
        if "access_token" not in answer:
            raise self._refused("an answer without access_token")
        return answer

    def _refused(self, reason: str) -> AuthenticationError:
        return AuthenticationError(
            f"no token for client {self.client_id!r} from {self.endpoint}: {reason}",
            hint=f"See {_ENDPOINT}, {_CREDENTIALS}id and {_CREDENTIALS}secret.",
        )


def _error_text(body: bytes) -> str:
    """Return the error in an answer, in the form of RFC 6749; empty if there is none."""
    try:
        answer = json.loads(body)
        return ": ".join(str(answer[name]) for name in ("error", "error_description") if answer.get(name))
    except (ValueError, TypeError, AttributeError):
        return ""
