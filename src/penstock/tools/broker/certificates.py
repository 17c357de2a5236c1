"""Certificates of a broker on this machine: its own authority, one for the broker and one per client."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import EnvironmentProblemError

if TYPE_CHECKING:
    import trustme

__all__ = ["make_certificates"]


def make_certificates(directory: Path, clients: tuple[str, ...] = ("client",)) -> None:
    """Make ``ca.pem``, ``server.pem`` and one file per client, each with its key, unless they exist.

    Args:
        directory: The directory of the files.
        clients: The names of clients, which are the users in ACLs.

    Raises:
        EnvironmentProblemError: The package ``trustme`` is missing.
    """
    missing = [name for name in clients if not (directory / f"{name}.pem").exists()]
    if (directory / "server.pem").exists() and not missing:
        return
    try:
        import trustme
    except ImportError as error:
        raise EnvironmentProblemError(
            "certificates are made by the package trustme, which is missing", hint="pip install 'penstock[broker]'"
        ) from error
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = trustme.CA(organization_name="Penstock")
    authority.cert_pem.write_to_path(directory / "ca.pem")
    server = authority.issue_cert("localhost", "127.0.0.1", common_name="broker")
    _write(directory / "server.pem", server)
    for name in clients:
        _write(directory / f"{name}.pem", authority.issue_cert(f"{name}@localhost", common_name=name))


def _write(path: Path, certificate: trustme.LeafCert) -> None:
    """Write key and certificates to one file; the key as PKCS #8, the only form that Java reads."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key(certificate.private_key_pem.bytes(), password=None)
    path.touch(mode=0o600)
    chain = [blob.bytes() for blob in certificate.cert_chain_pems]
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + b"".join(chain))
