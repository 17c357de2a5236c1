"""A client's identity and trust: read from either set of names, written for Java, librdkafka and Python."""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import ConfigError, EnvironmentProblemError
from penstock.log.kafka.security.key_stores import identity_of, is_pem, pem_certificates, pkcs8_key, subject_of

__all__ = ["Jaas", "Security", "jaas_line", "parse_jaas"]

_HEAD = re.compile(r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\b(.*)", re.DOTALL | re.IGNORECASE)
_OPTION = re.compile(r"""\s*([\w.-]+)\s*=\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s;"']+)""", re.DOTALL)
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}


@dataclass(frozen=True, slots=True, repr=False)
class Jaas:
    """A login module and its options, some of which are secrets."""

    module: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Jaas({self.module!r}, {sorted(self.options)})"


def parse_jaas(text: str) -> Jaas:
    r"""Parse the value of ``sasl.jaas.config``.

    >>> parse_jaas('org.example.PlainLoginModule required username="al" password="a\\"b";').options
    {'username': 'al', 'password': 'a"b'}

    Raises:
        ConfigError: It is malformed; the message names the place, but no value.
    """
    head = _HEAD.fullmatch(text)
    if head is None:
        raise _wrong("it does not begin with a login module and 'required'")
    options: dict[str, str] = {}
    rest = head.group(3)
    while rest.strip() not in ("", ";"):
        option = _OPTION.match(rest)
        if option is None:
            after = f"after the option {list(options)[-1]!r}" if options else "after 'required'"
            raise _wrong(f'{after} no option of the form name="value" follows')
        value = option.group(2)
        if value[0] in "\"'":
            value = re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL)
        options[option.group(1)] = value
        rest = rest[option.end() :]
    if not rest.strip():
        raise _wrong("it does not end with a semicolon")
    return Jaas(head.group(1), options)


def _wrong(problem: str) -> ConfigError:
    return ConfigError(
        f"sasl.jaas.config cannot be read: {problem}",
        hint=f'For example: {_MODULES["PLAIN"]} required username="alice" password="${{env:KAFKA_PASSWORD}}"; - '
        "or give sasl.username and sasl.password instead.",
        setting="sasl.jaas.config",
    )


def jaas_line(mechanism: str, options: Mapping[str, str]) -> str:
    """Return the value of ``sasl.jaas.config`` for a SASL mechanism."""
    if mechanism not in _MODULES:
        raise ConfigError(
            f"sasl.mechanism is {mechanism!r}", hint=f"One of {', '.join(_MODULES)}.", setting="sasl.mechanism"
        )
    pairs = "".join(f' {name}="{_escaped(value)}"' for name, value in options.items())
    return f"{_MODULES[mechanism]} required{pairs};"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_WITH_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISMS = (*_WITH_PASSWORD, "OAUTHBEARER")
_OIDC_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"

# The names of both sets that are read here; all others are passed on.
_NAMES = (
    "security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.jaas.config", "sasl.username", "sasl.password",
    "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type", "ssl.truststore.certificates",
    "ssl.ca.location", "ssl.ca.pem", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type",
    "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.key.password", "ssl.certificate.location",
    "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem", "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
)  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class Security:
    """The settings of `_NAMES`, from either set of names; empty text means "not set".

    Attributes:
        protocol: ``security.protocol``.
        mechanism: ``sasl.mechanism``.
        login: Options of the login module, by JAAS's names.
        jaas: ``sasl.jaas.config``, unchanged.
        trusted: The trusted authorities as PEM.
        trusted_file: Or their file, with the password of a store.
        certificate: The client's certificate as PEM.
        certificate_file: Or its file, with or without the key.
        key: The client's key as PEM.
        key_file: Or its file.
        key_password: The password of the key.
        keystore: A PKCS #12 file with both, and its password.
        verifies_host: Whether the broker's name must be in its certificate.
        verifies: Whether the broker's certificate is verified.
    """

    protocol: str = "PLAINTEXT"
    mechanism: str = "GSSAPI"
    login: Mapping[str, str] = field(default_factory=dict)
    jaas: str = ""
    trusted: str = ""
    trusted_file: tuple[str, str] = ("", "")
    certificate: str = ""
    certificate_file: str = ""
    key: str = ""
    key_file: str = ""
    key_password: str = ""
    keystore: tuple[str, str] = ("", "")
    verifies_host: bool = True
    verifies: bool = True

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> tuple[Security, dict[str, str]]:
        """Read the settings of `_NAMES`, and also return the remaining ones."""
        security_settings = {name: settings[name] for name in _NAMES if name in settings}
        rest = {name: value for name, value in settings.items() if name not in security_settings}
        get = security_settings.get
        protocol = get("security.protocol", "PLAINTEXT").upper()
        if protocol not in _PROTOCOLS:
            raise ConfigError(
                f"security.protocol is {protocol!r}",
                hint=f"One of {', '.join(_PROTOCOLS)}.",
                setting="security.protocol",
            )
        keystore = get("ssl.keystore.location", "")
        pem_keystore = keystore if keystore and is_pem(keystore, "ssl.keystore.location") else ""
        security = cls(
            protocol=protocol,
            mechanism=(get("sasl.mechanism") or get("sasl.mechanisms") or "GSSAPI").upper(),
            login=_login(security_settings),
            jaas=get("sasl.jaas.config", ""),
            trusted=get("ssl.truststore.certificates") or get("ssl.ca.pem") or "",
            trusted_file=(
                get("ssl.truststore.location") or get("ssl.ca.location") or "",
                get("ssl.truststore.password", ""),
            ),
            certificate=get("ssl.keystore.certificate.chain") or get("ssl.certificate.pem") or "",
            certificate_file=pem_keystore or get("ssl.certificate.location", ""),
            key=get("ssl.keystore.key") or get("ssl.key.pem") or "",
            key_file=pem_keystore or get("ssl.key.location", ""),
            key_password=get("ssl.key.password", ""),
            keystore=("", "") if pem_keystore or not keystore else (keystore, get("ssl.keystore.password", "")),
            verifies_host=get("ssl.endpoint.identification.algorithm", "https").lower() not in ("", "none"),
            verifies=get("enable.ssl.certificate.verification", "true").lower() == "true",
        )
        security._check(security_settings)
        return security, rest

    def _check(self, security_settings: Mapping[str, str]) -> None:
        if self.uses_sasl and self.mechanism not in _MECHANISMS:
            default = (
                ""
                if "sasl.mechanism" in security_settings or "sasl.mechanisms" in security_settings
                else ", as nothing else is set"
            )
            raise ConfigError(
                f"security.protocol {self.protocol} with sasl.mechanism {self.mechanism}{default}: not supported",
                hint=f"One of {', '.join(_MECHANISMS)}; or security.protocol=SSL with a client certificate. A cluster "
                "may have a listener of its own for it.",
                setting="sasl.mechanism",
            )
        if self.uses_sasl and self.mechanism in _WITH_PASSWORD and not self.username:
            raise ConfigError(
                f"security.protocol {self.protocol} with {self.mechanism} needs a user",
                hint="Set sasl.jaas.config (username and password in it), or sasl.username and sasl.password.",
                setting="sasl.jaas.config",
            )
        secured = [
            name
            for name in security_settings
            if name.startswith("sasl.") or name == "enable.ssl.certificate.verification"
        ]
        if not self.uses_sasl and (self.username or self.jaas):
            raise ConfigError(
                f"{', '.join(secured)} would have no effect: security.protocol is {self.protocol}",
                hint="Set security.protocol to SASL_SSL (or SASL_PLAINTEXT, if the network is trusted).",
                setting="security.protocol",
            )

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def username(self) -> str:
        return self.login.get("username", "")

    @property
    def password(self) -> str:
        return self.login.get("password", "")

    def librdkafka(self) -> dict[str, str]:
        """Return the settings by librdkafka's names."""
        config = {"security.protocol": self.protocol.lower()} if self.protocol != "PLAINTEXT" else {}
        if self.uses_sasl:
            config["sasl.mechanism"] = self.mechanism
            config |= self._login_of_librdkafka()
        if not self.uses_tls:
            return config
        if not self.verifies_host:
            config["ssl.endpoint.identification.algorithm"] = "none"
        if not self.verifies:
            config["enable.ssl.certificate.verification"] = "false"
        trusted, trusted_file = self._trusted_pem()
        pairs = {
            "ssl.ca.pem": trusted,
            "ssl.ca.location": trusted_file,
            "ssl.certificate.pem": self.certificate,
            "ssl.certificate.location": self.certificate_file,
            "ssl.key.pem": self.key,
            "ssl.key.location": self.key_file,
            "ssl.key.password": self.key_password,
        }
        if self.keystore[0]:
            own = identity_of(*self.keystore, "ssl.keystore.location")
            pairs |= {"ssl.certificate.pem": own.chain, "ssl.key.pem": own.key, "ssl.key.password": ""}
        return config | {name: value for name, value in pairs.items() if value}

    def _login_of_librdkafka(self) -> dict[str, str]:
        if self.mechanism in _WITH_PASSWORD:
            return {"sasl.username": self.username, "sasl.password": self.password}
        return {}  # OAUTHBEARER needs more than a login: see ClientSettings

    def jvm(self) -> dict[str, str]:
        """Return the settings by Java's names."""
        properties = {"security.protocol": self.protocol} if self.protocol != "PLAINTEXT" else {}
        if self.uses_sasl:
            properties["sasl.mechanism"] = self.mechanism
            if self.jaas or self.login:
                properties["sasl.jaas.config"] = self.jaas or jaas_line(self.mechanism, self.login)
            if self.mechanism == "OAUTHBEARER":
                properties["sasl.login.callback.handler.class"] = _OIDC_HANDLER
        if not self.uses_tls:
            return properties
        if not self.verifies:
            raise ConfigError(
                "enable.ssl.certificate.verification is false, which Java's clients do not support",
                hint="Trust the broker's certificate with ssl.truststore.location instead.",
                setting="enable.ssl.certificate.verification",
            )
        if not self.verifies_host:
            properties["ssl.endpoint.identification.algorithm"] = ""
        properties |= self._trusted_of_java()
        return properties | self._identity_of_java()

    def _trusted_of_java(self) -> dict[str, str]:
        if self.trusted:
            return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": self.trusted}
        location, password = self.trusted_file
        if not location:
            return {}
        if is_pem(location, "ssl.truststore.location"):
            return {"ssl.truststore.type": "PEM", "ssl.truststore.location": location}
        properties = {"ssl.truststore.location": location}  # Java detects JKS and PKCS #12 itself
        return properties | ({"ssl.truststore.password": password} if password else {})

    def _identity_of_java(self) -> dict[str, str]:
        password = {"ssl.key.password": self.key_password} if self.key_password else {}
        if self.keystore[0]:
            return {
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": self.keystore[0],
                "ssl.keystore.password": self.keystore[1],
                **password,
            }
        if self.certificate_file and self.certificate_file == self.key_file:
            return {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.certificate_file, **password}
        certificate = self.certificate or _text(self.certificate_file, "ssl.certificate.location")
        key = self.key or _text(self.key_file, "ssl.key.location")
        if not certificate or not key:
            return {}
        key = pkcs8_key(key, self.key_password, "ssl.key.location")
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": certificate,
            "ssl.keystore.key": key,
            **password,
        }

    def _trusted_pem(self) -> tuple[str, str]:
        """Return the trusted authorities as text, or their PEM file."""
        location, password = self.trusted_file
        if self.trusted or not location or location == "probe" or Path(location).is_dir():
            return self.trusted, "" if self.trusted else location
        if is_pem(location, "ssl.truststore.location"):
            return "", location
        return pem_certificates(location, password or None, "ssl.truststore.location"), ""

    def context(self) -> ssl.SSLContext | None:
        """Make the context of clients that open their sockets in Python; None without TLS."""
        if not self.uses_tls:
            return None
        trusted, location = self._trusted_pem()
        is_folder = bool(location) and Path(location).is_dir()
        context = ssl.create_default_context(
            cafile=None if is_folder or location == "probe" else location or None,
            capath=location if is_folder else None,
            cadata=trusted or None,
        )
        context.check_hostname = self.verifies_host and self.verifies
        if not self.verifies:
            context.verify_mode = ssl.CERT_NONE
        chain, key = self.certificate, self.key
        if self.keystore[0]:
            own = identity_of(*self.keystore, "ssl.keystore.location")
            chain, key = own.chain, own.key
        if chain and key:
            _load_pem(context, chain + "\n" + key, self.key_password)
        elif self.certificate_file:
            context.load_cert_chain(self.certificate_file, self.key_file or None, lambda: self.key_password)
        return context

    def subject(self) -> str:
        """Return the name in the client's certificate in Kafka's form, ``CN=client,O=Penstock``; empty without one."""
        try:
            chain = identity_of(*self.keystore, "ssl.keystore.location").chain if self.keystore[0] else self.certificate
            chain = chain or _text(self.certificate_file, "ssl.certificate.location")
            return subject_of(chain) if chain else ""
        except (ConfigError, EnvironmentProblemError):
            return ""  # it only makes a message clearer


def _login(security_settings: Mapping[str, str]) -> dict[str, str]:
    if "sasl.jaas.config" in security_settings:
        if "sasl.username" in security_settings or "sasl.password" in security_settings:
            raise ConfigError(
                "sasl.jaas.config and sasl.username say the same thing twice",
                hint="Keep one of them.",
                setting="sasl.jaas.config",
            )
        return dict(parse_jaas(security_settings["sasl.jaas.config"]).options)
    names = {"sasl.username": "username", "sasl.password": "password"}
    return {new: security_settings[old] for old, new in names.items() if old in security_settings}


def _text(path: str, setting: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{setting} is {path}, which cannot be read: {error.strerror}", setting=setting) from error


def _load_pem(context: ssl.SSLContext, text: str, password: str) -> None:
    """Load a client's key by a private temporary file, as Python's ssl reads keys from files only."""
    handle, name = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        context.load_cert_chain(name, password=lambda: password)
    finally:
        Path(name).unlink()
