"""Tokens that are requested from a provider, kept while they last, and renewed before they end."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import AuthenticationError, ConfigError

__all__ = ["CachedTokens", "ClientCredentials", "Token", "claim_of"]

_TIMEOUT_S = 10.0
_OF_LIFETIME = 0.8  # a token is renewed well before it ends
_DEFAULT_LIFETIME_S = 60.0
_AGAIN_S = 5.0  # until the next request, while the present token lasts


@dataclass(frozen=True, slots=True, repr=False)
class Token:
    """A token, with the time at which it ends, in seconds since 1970."""

    text: str
    ends_s: float


def claim_of(token: str, name: str) -> str | None:
    """Return a claim of a token, unchecked, for messages; None if the token is no JWT or has no such text.

    >>> claim_of("e30.eyJzdWIiOiJhbGljZSJ9.", "sub")
    'alice'
    >>> claim_of("opaque", "sub")
    """
    _, _, rest = token.partition(".")
    text = rest.partition(".")[0]
    try:
        claims = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        return claims[name] if isinstance(claims[name], str) else None
    except (ValueError, TypeError, KeyError, IndexError):
        return None


class CachedTokens:
    """The tokens of one provider, for one process; thread-safe.

    Args:
        request: Requests a new token.
    """

    def __init__(self, request: Callable[[], Token]) -> None:
        self._request = request
        self._token: Token | None = None
        self._renew_at = 0.0
        self._lock = threading.Lock()

    def get(self) -> Token:
        """Return a token; requests one if there is none, or if four fifths of its time have passed.

        Where a new one cannot be had, the present one is returned as long as it lasts, and asked for again soon.

        Raises:
            AuthenticationError: The provider refuses, or there are no credentials.
        """
        with self._lock:
            if self._token is None or time.monotonic() >= self._renew_at:
                try:
                    self._token = self._request()
                except AuthenticationError:
                    if self._token is None or self._token.ends_s - time.time() < _AGAIN_S:
                        raise
                    self._renew_at = time.monotonic() + _AGAIN_S
                else:
                    self._renew_at = time.monotonic() + _OF_LIFETIME * max(0.0, self._token.ends_s - time.time())
            return self._token


@dataclass(frozen=True, slots=True, repr=False)
class ClientCredentials:
    """The client credentials grant (RFC 6749, 4.4) of an identity provider.

    Attributes:
        endpoint: The provider's URL.
        client_id: The client's id.
        client_secret: The client's secret.
        scope: The requested scope; empty: the provider's default.
        authorities: A PEM file with the trusted authorities of the endpoint; empty: the system's.
        setting: The name of the setting with the endpoint, for messages.
        settings_of_client: The beginning of the names of those with the client's id and secret.
        more: More fields of the request.
    """

    endpoint: str
    client_id: str
    client_secret: str
    scope: str = ""
    authorities: str = ""
    setting: str = ""
    settings_of_client: str = ""
    more: tuple[tuple[str, str], ...] = field(default=())

    def request(self) -> Token:
        """Request a token.

        Raises:
            AuthenticationError: The provider refuses.
            ConfigError: The endpoint is no URL of the web.
        """
        answer = self._ask()
        try:
            lifetime_s = float(answer.get("expires_in", _DEFAULT_LIFETIME_S))
        except (TypeError, ValueError):
            lifetime_s = _DEFAULT_LIFETIME_S
        return Token(str(answer["access_token"]), time.time() + lifetime_s)

    def _ask(self) -> dict[str, Any]:
        form = {"grant_type": "client_credentials", **dict(self.more)}
        form |= {"scope": self.scope} if self.scope else {}
        pair = f"{self.client_id}:{self.client_secret}".encode()
        request = urllib.request.Request(  # noqa: S310 - the scheme is checked below
            self.endpoint,
            urllib.parse.urlencode(form).encode(),
            {"Authorization": f"Basic {base64.b64encode(pair).decode()}", "Accept": "application/json"},
        )
        if request.type not in ("http", "https"):
            raise ConfigError(
                f"{self.setting} is {self.endpoint}", hint="It begins with https://", setting=self.setting
            )
        context = ssl.create_default_context(cafile=self.authorities or None) if request.type == "https" else None
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=context) as reply:  # noqa: S310
                answer: dict[str, Any] = json.load(reply)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(f"{error.code} {_error_text(error.read())}".rstrip()) from error
        except (OSError, ValueError) as error:
            raise self._refused(str(getattr(error, "reason", error))) from error
        if not isinstance(answer, dict) or "access_token" not in answer:
            raise self._refused("an answer without access_token")
        return answer

    def _refused(self, reason: str) -> AuthenticationError:
        return AuthenticationError(
            f"no token for client {self.client_id!r} from {self.endpoint}: {reason}",
            hint=f"See {self.setting}, {self.settings_of_client}id and {self.settings_of_client}secret.",
        )


def _error_text(body: bytes) -> str:
    """Return the error in an answer, in the form of RFC 6749; empty if there is none."""
    try:
        answer = json.loads(body)
        return ": ".join(str(answer[name]) for name in ("error", "error_description") if answer.get(name))
    except (ValueError, TypeError, AttributeError):
        return ""
