"""Tokens for OAUTHBEARER: asked of the identity provider with the client's own credentials, kept while they last."""

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
    """Gives a token that is valid; many threads may ask.

    Args:
        endpoint: The provider's URL.
        client_id: Who asks.
        client_secret: What proves it.
        scope: What the token is to be for; empty: what the provider decides.
        extensions: What is told to the broker beside the token.
        authorities: A PEM file with the authorities that are trusted for the endpoint; empty: the system's.
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
        """Of the settings, in which credentials go before those of the login module, as in Java's clients.

        Args:
            login: Options of ``sasl.jaas.config``.
            settings: The other settings, by Java's names.

        Raises:
            ConfigError: Something that is needed is missing.
        """
        given = {
            _ENDPOINT: settings.get(_ENDPOINT, ""),
            f"{_CREDENTIALS}id": settings.get(f"{_CREDENTIALS}id") or login.get("clientId", ""),
            f"{_CREDENTIALS}secret": settings.get(f"{_CREDENTIALS}secret") or login.get("clientSecret", ""),
        }
        if missing := [name for name, value in given.items() if not value]:
            raise ConfigError(
                f"OAUTHBEARER needs {', '.join(missing)}",
                hint="Tokens are asked for with client credentials at an identity provider; no other way is known.",
                setting=missing[0],
            )
        own = (each.split("=", 1) for each in settings.get(f"{_PREFIX}extensions", "").split(",") if "=" in each)
        of_java = {name.removeprefix("extension_"): v for name, v in login.items() if name.startswith("extension_")}
        return cls(
            endpoint=given[_ENDPOINT],
            client_id=given[f"{_CREDENTIALS}id"],
            client_secret=given[f"{_CREDENTIALS}secret"],
            scope=settings.get(f"{_PREFIX}scope") or login.get("scope", ""),
            extensions={**of_java, **{name.strip(): value.strip() for name, value in own}},
            authorities=settings.get("https.ca.location", ""),
        )

    def librdkafka(self) -> dict[str, str]:
        """What librdkafka is told, which asks for tokens itself."""
        found = {
            f"{_PREFIX}method": "oidc",
            _ENDPOINT: self.endpoint,
            f"{_PREFIX}client.id": self.client_id,
            f"{_PREFIX}client.secret": self.client_secret,
            f"{_PREFIX}scope": self.scope,
            f"{_PREFIX}extensions": ",".join(f"{name}={value}" for name, value in self.extensions.items()),
            "https.ca.location": self.authorities,
        }
        return {name: value for name, value in found.items() if value}

    def login(self) -> dict[str, str]:
        """Options of Java's login module."""
        found = {"clientId": self.client_id, "clientSecret": self.client_secret, "scope": self.scope}
        found |= {f"extension_{name}": value for name, value in self.extensions.items()}
        return {name: value for name, value in found.items() if value}

    def token(self) -> str:
        """The token; asked for if there is none, or the last one ends soon.

        Raises:
            AuthenticationError: The provider gives none.
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
                raise self._refused(f"{error.code} {_told(error.read())}".rstrip()) from error
        except (OSError, ValueError) as error:
            raise self._refused(str(getattr(error, "reason", error))) from error
        if "access_token" not in answer:
            raise self._refused("an answer without access_token")
        return answer

    def _refused(self, why: str) -> AuthenticationError:
        return AuthenticationError(
            f"no token for client {self.client_id!r} from {self.endpoint}: {why}",
            hint=f"See {_ENDPOINT}, {_CREDENTIALS}id and {_CREDENTIALS}secret.",
        )


def _told(body: bytes) -> str:
    """The error that RFC 6749 wants in an answer, if it is there."""
    try:
        answer = json.loads(body)
        return ": ".join(str(answer[name]) for name in ("error", "error_description") if answer.get(name))
    except (ValueError, TypeError, AttributeError):
        return ""
