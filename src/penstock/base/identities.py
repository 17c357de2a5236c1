"""Tokens of identity providers: of client credentials, of clouds, and of functions of users.

Each process asks for its own tokens: what is carried to other machines is the name, and no secret.
"""

from __future__ import annotations

import base64
import functools
import importlib
import json
import os
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC
from typing import TYPE_CHECKING, Any

from penstock.errors import AuthenticationError, ConfigError, EnvironmentProblemError, PenstockError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CLOUDS", "CachedTokens", "ClientCredentials", "Token", "claim_of", "identity_tokens"]

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


CLOUDS = ("aws", "azure", "google")
_OPTIONS = {"aws": ("region", "profile", "role.arn"), "azure": ("scope",), "google": ("format",)}
_EXTRAS = {"aws": "penstock[aws]", "azure": "penstock[azure]", "google": "penstock[google]"}
_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_USERS_LIFETIME_S = 300.0  # of a token whose end a user's function does not say


def identity_tokens(name: str, options: Mapping[str, str], setting: str) -> CachedTokens:
    """Return this process's tokens of an identity.

    Args:
        name: "aws", "azure", "google", or ``module:function`` for a function without arguments that returns a token,
            or a token and its end in seconds since 1970.
        options: ``region``, ``profile`` and ``role.arn`` for AWS, ``scope`` for Azure, ``format`` for Google ("kafka"
            or "access").
        setting: The setting with the name, for messages.

    Raises:
        ConfigError: There is no identity of that name, or an option is missing, or would have no effect.
        EnvironmentProblemError: Its package is not installed.
    """
    if others := sorted(options.keys() - set(_OPTIONS.get(name, ()))):
        own = ", ".join(f"{setting}.{option}" for option in _OPTIONS.get(name, ()))
        raise ConfigError(
            f"{setting}.{others[0]} has no effect on {setting}={name}",
            hint=f"Its options: {own}." if own else "A function has no options.",
            setting=f"{setting}.{others[0]}",
        )
    return _tokens(os.getpid(), name, tuple(sorted(options.items())), setting)


@functools.lru_cache(maxsize=64)
def _tokens(_process: int, name: str, options: tuple[tuple[str, str], ...], setting: str) -> CachedTokens:
    own = dict(options)
    if name in CLOUDS:
        return CachedTokens({"aws": _aws, "azure": _azure, "google": _google}[name](own, setting))
    return CachedTokens(_of_user(name, setting))


@contextmanager
def _explained(cloud: str, hint: str) -> Iterator[None]:
    """Turn the errors of a cloud's package into ours; their texts name no secrets."""
    try:
        yield
    except PenstockError:
        raise
    except Exception as error:
        raise AuthenticationError(
            f"no token of {cloud}: {type(error).__name__}: {' '.join(str(error).split())}", hint=hint
        ) from error


def _not_installed(cloud: str, error: ImportError) -> EnvironmentProblemError:
    return EnvironmentProblemError(
        f"tokens of {cloud} need a package that is not installed: {error}",
        hint=f'Run: pip install "{_EXTRAS[cloud]}" (on all machines).',
    )


def _aws(options: Mapping[str, str], setting: str) -> Callable[[], Token]:
    try:
        import boto3
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Signer
    except ImportError as error:
        raise _not_installed("aws", error) from error
    role, profile = options.get("role.arn"), options.get("profile")
    if role and profile:
        raise ConfigError(
            f"{setting}.role.arn and {setting}.profile are both set",
            hint="Amazon's signer takes one of them; a profile of ~/.aws/config may have a role_arn itself.",
            setting=f"{setting}.profile",
        )
    region = options.get("region") or os.environ.get("AWS_REGION")
    if not region:
        with _explained("aws", "Profiles are in ~/.aws/config."):
            region = boto3.session.Session(profile_name=profile or None).region_name
    if not region:
        raise ConfigError(
            f"{setting} is aws, and no region is named",
            hint=f"Set {setting}.region, such as eu-central-1, or AWS_REGION.",
            setting=f"{setting}.region",
        )

    def request() -> Token:
        hint = "AWS looks for credentials in the environment, in ~/.aws, and in the roles of the machine or the pod."
        with _explained("aws", hint):
            if role:
                text, ends_ms = Signer.generate_auth_token_from_role_arn(region, role)
            elif profile:
                text, ends_ms = Signer.generate_auth_token_from_profile(region, profile)
            else:
                text, ends_ms = Signer.generate_auth_token(region)
        return Token(text, ends_ms / 1000)

    return request


def _azure(options: Mapping[str, str], setting: str) -> Callable[[], Token]:
    try:
        from azure.identity import DefaultAzureCredential
    except ImportError as error:
        raise _not_installed("azure", error) from error
    scope = options.get("scope", "")
    if not scope:
        raise ConfigError(
            f"{setting} is azure, and no scope is named",
            hint=f"Set {setting}.scope, such as https://NAMESPACE.servicebus.windows.net/.default for Event Hubs.",
            setting=f"{setting}.scope",
        )
    credential = DefaultAzureCredential()

    def request() -> Token:
        hint = (
            "Azure looks for credentials in the environment (AZURE_CLIENT_ID, ...), in the identity of the machine or "
            "the pod, and in its command-line tools."
        )
        with _explained("azure", hint):
            token = credential.get_token(scope)
        return Token(token.token, float(token.expires_on))

    return request


def _google(options: Mapping[str, str], setting: str) -> Callable[[], Token]:
    try:
        import google.auth
        import google.auth.transport.requests
    except ImportError as error:
        raise _not_installed("google", error) from error
    form = options.get("format", "kafka")
    if form not in ("kafka", "access"):
        raise ConfigError(
            f"{setting}.format is {form!r}",
            hint='"kafka": as Google\'s managed Kafka takes tokens; "access": the access token itself.',
            setting=f"{setting}.format",
        )
    hint = (
        "Google looks for credentials in GOOGLE_APPLICATION_CREDENTIALS, in those of gcloud, and in the service "
        "account of the machine."
    )

    def request() -> Token:
        with _explained("google", hint):
            credentials: Any = google.auth.default(scopes=[_GOOGLE_SCOPE])[0]
            credentials.refresh(google.auth.transport.requests.Request())
            ends_s = credentials.expiry.replace(tzinfo=UTC).timestamp()
            text = _for_managed_kafka(credentials, ends_s) if form == "kafka" else credentials.token
        return Token(text, ends_s)

    return request


def _for_managed_kafka(credentials: Any, ends_s: float) -> str:
    """Return an access token as Google's managed Kafka takes it: a JWT with the token in place of a signature."""
    subject = getattr(credentials, "service_account_email", "") or getattr(credentials, "signer_email", "") or ""
    claims = {"exp": ends_s, "iss": "Google", "iat": time.time(), "scope": "kafka", "sub": subject}
    parts = (json.dumps({"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}), json.dumps(claims), credentials.token)
    return ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)


def _of_user(name: str, setting: str) -> Callable[[], Token]:
    module, _, function = name.partition(":")
    if not module or not function:
        raise ConfigError(
            f"{setting} is {name!r}",
            hint=f"One of {', '.join(CLOUDS)}, or module:function for a function that returns a token.",
            setting=setting,
        )
    try:
        provider: Any = importlib.import_module(module)
        for part in function.split("."):
            provider = getattr(provider, part)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{setting} is {name!r}, which cannot be imported: {error}",
            hint="The module has to be there on the driver and on every executor.",
            setting=setting,
        ) from error

    def request() -> Token:
        with _explained(f"{setting}={name}", "The function has raised it."):
            told = provider()
            text, ends_s = told if isinstance(told, tuple) else (told, time.time() + _USERS_LIFETIME_S)
        if not isinstance(text, str) or not text:
            raise AuthenticationError(
                f"{setting}={name} has returned a {type(text).__name__}, and no token",
                hint="It returns a text, or a text and its end in seconds since 1970.",
            )
        return Token(text, float(ends_s))

    return request
