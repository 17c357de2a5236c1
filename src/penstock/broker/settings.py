"""How a broker is set up: its listeners, its users, and the properties that Kafka reads."""

from __future__ import annotations

import json
import random
import socket
from dataclasses import asdict, dataclass, field
from pathlib import Path

from penstock.errors import ConfigError

__all__ = ["BrokerSettings", "free_port", "load_settings"]

_LOCAL = "127.0.0.1"
_SERVER_PORTS = range(20_000, 32_000)
_FILE = "broker.json"


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """A single-node broker on the loopback address.

    The plain listener is open to everybody on this machine, as its superuser; the others are there to try security.

    Attributes:
        directory: Where data, settings, certificates and the log are kept.
        port: The plain listener.
        controller_port: The controller's.
        sasl_port: A listener with SASL/PLAIN and SCRAM-SHA-512 for ``users``, and OAUTHBEARER with tokens that nobody
            has to sign; None: none.
        tls_port: A listener that wants a client certificate (mTLS); None: none.
        users: Name -> password.
        acls: Whether users need ACLs for what they do (``admin`` and the plain listener never do).
        partitions: Of topics that are made on first use.
        heap_mb: The broker's memory.
    """

    directory: Path
    port: int = 9092
    controller_port: int = 9093
    sasl_port: int | None = None
    tls_port: int | None = None
    users: dict[str, str] = field(default_factory=dict)
    acls: bool = False
    partitions: int = 1
    heap_mb: int = 512

    def __post_init__(self) -> None:
        ports = [p for p in (self.port, self.controller_port, self.sasl_port, self.tls_port) if p is not None]
        if len(set(ports)) != len(ports):
            raise ConfigError(f"two listeners of the broker want one port: {ports}", hint="Give each its own.")
        for name, password in self.users.items():
            if not name or not password or set(name + password) & set(",=[]\"'\\; \n"):
                raise ConfigError(
                    f"user {name!r}: names and passwords of a broker have no blanks, commas, quotes, brackets or '='",
                    hint="For example --user alice:secret",
                )
        if self.users and self.sasl_port is None:
            raise ConfigError("users need a listener that asks for them", hint="Give --sasl-port as well.")

    @property
    def bootstrap_servers(self) -> str:
        return f"{_LOCAL}:{self.port}"

    @property
    def certificates(self) -> Path:
        """The folder of ``ca.pem``, ``server.pem`` and ``client.pem``."""
        return self.directory / "certificates"

    def listeners(self) -> dict[str, int]:
        """Listener -> port, those that clients use."""
        wanted = {"PLAINTEXT": self.port, "SASL_PLAINTEXT": self.sasl_port, "SSL": self.tls_port}
        return {name: port for name, port in wanted.items() if port is not None}

    def properties(self) -> dict[str, str]:
        """What ``server.properties`` says."""
        clients = [f"{name}://{_LOCAL}:{port}" for name, port in self.listeners().items()]
        protocols = [*(f"{name}:{name}" for name in self.listeners()), "CONTROLLER:PLAINTEXT"]
        found = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{_LOCAL}:{self.controller_port}",
            "listeners": ",".join([*clients, f"CONTROLLER://{_LOCAL}:{self.controller_port}"]),
            "advertised.listeners": ",".join(clients),
            "listener.security.protocol.map": ",".join(protocols),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.directory / "data"),
            "num.partitions": str(self.partitions),
            "log.retention.ms": "-1",  # records with old timestamps would be deleted at once
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.num.partitions": "4",
        }
        for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
            found[f"{topic}.replication.factor"] = "1"
        found["transaction.state.log.min.isr"] = found["share.coordinator.state.topic.min.isr"] = "1"
        if self.sasl_port is not None:
            found |= self._sasl()
        if self.tls_port is not None:
            found |= self._tls()
        if self.acls:
            found["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            found["super.users"] = "User:ANONYMOUS;User:admin"
        return found

    def _sasl(self) -> dict[str, str]:
        users = "".join(f' user_{name}="{password}"' for name, password in self.users.items())
        login = "org.apache.kafka.common.security"
        return {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{login}.plain.PlainLoginModule required{users};",
            "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": f"{login}.scram.ScramLoginModule required;",
            # Kafka's handler for development: whoever the token names, signed or not.
            "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f"{login}.oauthbearer.OAuthBearerLoginModule "
            'required unsecuredLoginStringClaim_sub="broker";',
        }

    def _tls(self) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificates / "server.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates / "ca.pem"),
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^.*CN=([^,]*).*$/$1/,DEFAULT",
        }

    def save(self) -> None:
        """Keeps the settings in the directory, for the other commands; readable by this user alone."""
        path = self.directory / _FILE
        path.touch(mode=0o600)
        path.write_text(json.dumps(asdict(self) | {"directory": str(self.directory)}, indent=1) + "\n")


def load_settings(directory: Path) -> BrokerSettings | None:
    """The settings that a broker in this directory was started with; None if there was none."""
    path = directory / _FILE
    if not path.exists():
        return None
    found = json.loads(path.read_text())
    return BrokerSettings(**found | {"directory": Path(found["directory"])})


def free_port() -> int:
    """A port of the loopback address that nothing listens on at this moment.

    None of those that the system gives to outgoing connections: while a server is away, one of its clients could be
    given its port, be connected to itself, and keep the server from coming back.
    """
    while True:
        port = random.choice(_SERVER_PORTS)  # noqa: S311 - so that two who look at the same time find two
        with socket.socket() as probe:
            try:
                probe.bind((_LOCAL, port))
            except OSError:
                continue
            return port
