"""The settings of a broker: its listeners, its users, and Kafka's properties."""

from __future__ import annotations

import errno
import json
import socket
from dataclasses import asdict, dataclass, field
from pathlib import Path

from penstock.base.jars import KAFKA_VERSION, KAFKA_VERSIONS
from penstock.base.randomness import RANDOM
from penstock.errors import ConfigError

__all__ = ["BrokerSettings", "free_port", "is_taken", "load_settings"]

_LOCAL = "127.0.0.1"
_SERVER_PORTS = range(20_000, 32_000)
_FILE = "broker.json"
_MOST_REPLICAS = 3


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """A broker on the loopback address, alone or one of several.

    The plain listener grants superuser rights to everybody on this machine; the others are for testing security.

    Attributes:
        directory: The directory of data, settings, certificates and the log.
        port: The port of the plain listener.
        controller_port: The port of the controller.
        sasl_port: The port of a listener with SASL/PLAIN and SCRAM-SHA-512 for ``users``, and OAUTHBEARER with unsigned
            tokens; None: no such listener.
        tls_port: The port of a listener that requires a client certificate (mTLS); None: no such listener.
        users: The passwords of users by name.
        acls: Whether users need ACLs (``admin`` and the plain listener never do).
        partitions: The partitions of topics created on first use.
        heap_mb: The broker's memory.
        node: Its number in the cluster.
        controller_ports: The controller ports of all brokers of the cluster, in order; empty: it is alone.
        cluster_id: The id of the cluster; empty: a new one.
        version: The version of Kafka.
        more: Further settings by Kafka's names, which override those made here.
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
    node: int = 1
    controller_ports: tuple[int, ...] = ()
    cluster_id: str = ""
    version: str = KAFKA_VERSION
    more: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ports = self.ports
        for port in ports:
            if not 1 <= port <= 65535:
                raise ConfigError(f"port {port} of the broker", hint="Ports go from 1 to 65535; Kafka's is 9092.")
        if len(set(ports)) != len(ports):
            raise ConfigError(f"two listeners of the broker have the same port: {ports}", hint="Give each its own.")
        for name, password in self.users.items():
            if not name or not password or set(name + password) & set(",=[]\"'\\; \n"):
                raise ConfigError(
                    f"user {name!r}: names and passwords of a broker have no blanks, commas, quotes, brackets or '='",
                    hint="Choose letters and digits.",
                )
        if self.version not in KAFKA_VERSIONS:
            raise ConfigError(
                f"there are no jars of a broker of Kafka {self.version!r}",
                hint=f"Choose one of {', '.join(KAFKA_VERSIONS)}.",
            )
        if self.users and self.sasl_port is None:
            raise ConfigError("users need a listener with authentication", hint="Give --sasl-port as well.")

    @property
    def ports(self) -> list[int]:
        """All ports that it listens on."""
        return [p for p in (self.port, self.controller_port, self.sasl_port, self.tls_port) if p is not None]

    @property
    def bootstrap_servers(self) -> str:
        return f"{_LOCAL}:{self.port}"

    @property
    def certificates(self) -> Path:
        """The folder of ``ca.pem``, ``server.pem`` and ``client.pem``."""
        return self.directory / "certificates"

    def listeners(self) -> dict[str, int]:
        """Return the ports of the clients' listeners by name."""
        ports = {"PLAINTEXT": self.port, "SASL_PLAINTEXT": self.sasl_port, "SSL": self.tls_port}
        return {name: port for name, port in ports.items() if port is not None}

    def properties(self) -> dict[str, str]:
        """Return the contents of ``server.properties``."""
        clients = [f"{name}://{_LOCAL}:{port}" for name, port in self.listeners().items()]
        voters = self.controller_ports or (self.controller_port,)
        replicas = min(len(voters), _MOST_REPLICAS)
        protocols = [*(f"{name}:{name}" for name in self.listeners()), "CONTROLLER:PLAINTEXT"]
        contents = {
            "process.roles": "broker,controller",
            "node.id": str(self.node),
            "controller.quorum.voters": ",".join(f"{node}@{_LOCAL}:{port}" for node, port in enumerate(voters, 1)),
            "listeners": ",".join([*clients, f"CONTROLLER://{_LOCAL}:{self.controller_port}"]),
            "advertised.listeners": ",".join(clients),
            "listener.security.protocol.map": ",".join(protocols),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.directory / "data"),
            "num.partitions": str(self.partitions),
            "log.retention.ms": "-1",  # records with old timestamps would be deleted at once
            "group.initial.rebalance.delay.ms": "0",
            "group.streams.initial.rebalance.delay.ms": "0",
            "group.streams.assignment.interval.ms": "0",
            "group.streams.min.session.timeout.ms": "6000",  # for groups that ask for it
            "group.streams.min.heartbeat.interval.ms": "100",
            "group.streams.min.task.offset.interval.ms": "100",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.num.partitions": "4",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        }
        for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
            contents[f"{topic}.replication.factor"] = str(replicas)
        for name in ("min.insync.replicas", "transaction.state.log.min.isr", "share.coordinator.state.topic.min.isr"):
            contents[name] = str(max(1, replicas - 1))
        contents["default.replication.factor"] = str(replicas)
        if self.sasl_port is not None:
            contents |= self._sasl()
        if self.tls_port is not None:
            contents |= self._tls()
        if self.acls:
            contents["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            contents["super.users"] = "User:ANONYMOUS;User:admin"
        return contents | self.more

    def _sasl(self) -> dict[str, str]:
        users = "".join(f' user_{name}="{password}"' for name, password in self.users.items())
        login = "org.apache.kafka.common.security"
        return {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{login}.plain.PlainLoginModule required{users};",
            "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": f"{login}.scram.ScramLoginModule required;",
            # Kafka's handler for development accepts unsigned tokens.
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
        """Save the settings in the directory, for the other commands; readable only by this user."""
        path = self.directory / _FILE
        path.touch(mode=0o600)
        path.write_text(json.dumps(asdict(self) | {"directory": str(self.directory)}, indent=1) + "\n")


def load_settings(directory: Path) -> BrokerSettings | None:
    """Load the settings of the broker last started in this directory; None if there was none."""
    path = directory / _FILE
    if not path.exists():
        return None
    document = json.loads(path.read_text())
    ports = tuple(document.get("controller_ports", ()))
    return BrokerSettings(**document | {"directory": Path(document["directory"]), "controller_ports": ports})


def is_taken(port: int) -> bool:
    """Return whether another process listens on a port of the loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java's servers do
        try:
            probe.bind((_LOCAL, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def free_port() -> int:
    """Return a free port of the loopback address, outside the range of outgoing connections.

    Otherwise a client of a stopped server could get the server's port for its own connection, be connected to itself,
    and keep the server from starting again.
    """
    while True:
        port = RANDOM.choice(_SERVER_PORTS)  # so that two processes find different ports
        with socket.socket() as probe:
            try:
                probe.bind((_LOCAL, port))
            except OSError:
                continue
            return port
