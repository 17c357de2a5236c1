"""Certificates and keys of Java's key stores, converted to PEM."""

from __future__ import annotations

import base64
import struct
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import ConfigError, EnvironmentProblemError

__all__ = ["Identity", "identity_of", "is_pem", "pem_certificates", "pkcs8_key", "subject_of"]

_JKS = b"\xfe\xed\xfe\xed"
_JCEKS = b"\xce\xce\xce\xce"
_PRIVATE = 1


@dataclass(frozen=True, slots=True, repr=False)
class Identity:
    """A client's certificate with its chain, and its private key, unencrypted, as PEM."""

    chain: str
    key: str


def is_pem(path: str, setting: str) -> bool:
    """Return whether a file is PEM text, and not one of Java's binary stores."""
    return b"-----BEGIN" in _content(path, setting)


def pem_certificates(path: str, password: str | None, setting: str) -> str:
    """Read the certificates of a truststore (JKS or PKCS #12) as PEM.

    Raises:
        ConfigError: It cannot be read, is not a store, or the password is wrong.
    """
    data = _content(path, setting)
    if data[:4] == _JKS:
        certificates = [_as_pem(one) for one in _certificates_of_jks(data, path, setting)]
    elif data[:4] == _JCEKS:
        raise _convert(path, setting, "a JCEKS store")
    else:
        store = _pkcs12(data, path, password, setting)
        certificates = [_written(one.certificate) for one in store.additional_certs]
        if store.cert is not None:
            certificates.append(_written(store.cert.certificate))
    if not certificates:
        raise ConfigError(
            f"{setting} is {path}, which contains no certificate",
            hint="A truststore holds the certificate of the authority that signed the broker's.",
            setting=setting,
        )
    return "".join(certificates)


def identity_of(path: str, password: str | None, setting: str) -> Identity:
    """Read the key and certificates of a PKCS #12 keystore.

    Raises:
        ConfigError: It is another kind of store, has no key, or the password is wrong.
    """
    data = _content(path, setting)
    if data[:4] in (_JKS, _JCEKS):
        raise _convert(path, setting, "a JKS keystore")
    store = _pkcs12(data, path, password, setting)
    if store.key is None or store.cert is None:
        raise ConfigError(
            f"{setting} is {path}, which contains no private key with its certificate",
            hint="It needs a PrivateKeyEntry: `keytool -list` shows its entries.",
            setting=setting,
        )
    chain = [store.cert.certificate, *(one.certificate for one in store.additional_certs)]
    return Identity("".join(map(_written, chain)), _key_text(store.key, None))


def pkcs8_key(pem: str, password: str | None, setting: str) -> str:
    """Convert a private key to PKCS #8, the only PEM form that Java reads; an encrypted key stays encrypted."""
    if "BEGIN PRIVATE KEY" in pem or "BEGIN ENCRYPTED PRIVATE KEY" in pem:
        return pem
    _need_cryptography(setting)
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    secret = password.encode() if password else None
    try:
        key = load_pem_private_key(pem.encode(), secret)
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"{setting} is not a readable private key: {error}",
            hint="Is ssl.key.password right?",
            setting=setting,
        ) from error
    return _key_text(key, secret)


def subject_of(chain: str) -> str:
    """Return the subject of the first certificate of a PEM text, in the form of RFC 2253, as in principals."""
    _need_cryptography("ssl.keystore.location")
    from cryptography.x509 import load_pem_x509_certificates

    return load_pem_x509_certificates(chain.encode())[0].subject.rfc4514_string()


def _key_text(key: Any, secret: bytes | None) -> str:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    encryption = BestAvailableEncryption(secret) if secret else NoEncryption()
    text: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    return text.decode()


def _written(certificate: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    text: bytes = certificate.public_bytes(Encoding.PEM)
    return text.decode()


def _as_pem(der: bytes) -> str:
    lines = textwrap.fill(base64.b64encode(der).decode(), 64)
    return f"-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n"


def _content(path: str, setting: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{setting} is {path}, which cannot be read: {error.strerror}",
            hint="The file must be at this path on the driver and on every executor.",
            setting=setting,
        ) from error


def _pkcs12(data: bytes, path: str, password: str | None, setting: str) -> Any:
    _need_cryptography(setting)
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        return load_pkcs12(data, password.encode() if password else None)
    except ValueError as error:
        wrong = "password" in str(error).lower()
        raise ConfigError(
            f"{setting} is {path}, which is not a readable PKCS #12 store: {error}",
            hint=f"Look at {setting.replace('.location', '.password')}."
            if wrong
            else "Stores may be PKCS #12, or PEM (certificates as text).",
            setting=setting,
        ) from error


def _certificates_of_jks(data: bytes, path: str, setting: str) -> Iterator[bytes]:
    """Yield the trusted certificates, the only entries that are not encrypted."""
    version, count = struct.unpack_from(">II", data, 4)
    at = 12
    try:
        for _ in range(count):
            (tag,) = struct.unpack_from(">I", data, at)
            at = _after_text(data, at + 4) + 8  # the alias, and when it was made
            if tag == _PRIVATE:
                raise _convert(path, setting, "a JKS store with private keys")
            if version == 2:
                at = _after_text(data, at)  # "X.509"
            (length,) = struct.unpack_from(">I", data, at)
            yield data[at + 4 : at + 4 + length]
            at += 4 + length
    except struct.error as error:
        raise ConfigError(f"{setting} is {path}, a JKS store that is cut short", setting=setting) from error


def _after_text(data: bytes, at: int) -> int:
    (length,) = struct.unpack_from(">H", data, at)
    return at + 2 + int(length)


def _convert(path: str, setting: str, what: str) -> ConfigError:
    name = Path(path).with_suffix(".p12")
    return ConfigError(
        f"{setting} is {path}, {what}, which only Java reads",
        hint=f"Convert it once: keytool -importkeystore -srckeystore {path} -destkeystore {name} "
        f"-deststoretype PKCS12 - and set {setting} to {name}.",
        setting=setting,
    )


def _need_cryptography(setting: str) -> None:
    try:
        import cryptography  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise EnvironmentProblemError(
            f"{setting} has a format that needs the package cryptography, which is not installed",
            hint='pip install "penstock[kafka]"',
        ) from error
