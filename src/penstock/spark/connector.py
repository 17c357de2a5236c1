"""Spark's own Kafka connector: which jars fit which PySpark, and how a session gets them, running or new.

Penstock's tasks read Kafka themselves; the connector serves real-time mode (``processing.mode=realtime``) and those who
ask for it (``penstock.kafka.source=connector``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyspark

from penstock.broker.jars import Coordinates, cache_directory, fetch_jars
from penstock.errors import EnvironmentProblemError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["COORDINATES", "add_connector", "connector_jars", "is_loaded"]

_SPARK = "org.apache.spark"


def _set(connector: str, token_provider: str, clients: str, pool: str) -> tuple[Coordinates, ...]:
    return (
        (_SPARK, "spark-sql-kafka-0-10_2.13", connector),
        (_SPARK, "spark-token-provider-kafka-0-10_2.13", token_provider),
        ("org.apache.kafka", "kafka-clients", clients),
        ("org.apache.commons", "commons-pool2", pool),
    )


# PySpark -> sets of jars that were tested with it, the best first: not every repository has every version.
COORDINATES: Mapping[str, tuple[tuple[Coordinates, ...], ...]] = MappingProxyType(
    {
        "4.2": (
            _set("4.2.0", "4.2.0", "3.9.1", "2.12.1"),
            _set("4.2.0", "4.0.0", "3.9.1", "2.12.1"),
        ),
        "4.3": (
            _set("4.3.0", "4.3.0", "3.9.1", "2.12.1"),
            _set("4.2.0", "4.0.0", "3.9.1", "2.12.1"),
        ),
    }
)
_CLASS = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


def connector_jars(given: Sequence[str] = (), version: str | None = None) -> list[Path]:
    """The connector's jar files: those given, else those in the user's cache, fetched if they are not there.

    Args:
        given: ``penstock.kafka.jars``: jar files, or folders of them.
        version: Of PySpark; None: the one that is installed.

    Raises:
        EnvironmentProblemError: What was given is not there, or nothing can be fetched.
    """
    if given:
        return _local(given)
    number = ".".join((version or pyspark.__version__).split(".")[:2])
    known = COORDINATES.get(number)
    if known is None:
        raise EnvironmentProblemError(
            f"no Kafka connector was tested with PySpark {number}",
            hint=f"Use PySpark {' or '.join(COORDINATES)}, or name its jar files in penstock.kafka.jars.",
        )
    names = [f"spark-kafka-{each[0][2]}-{each[1][2]}" for each in known]
    for name in names:
        folder = cache_directory() / name
        if folder.is_dir():
            return sorted(folder.glob("*.jar"))
    failures = []
    for name, coordinates in zip(names, known, strict=True):
        try:
            return sorted(fetch_jars(name, coordinates, transitive=False).glob("*.jar"))
        except EnvironmentProblemError as error:
            failures.append(error.message)
    raise EnvironmentProblemError(
        f"Spark's Kafka connector could not be fetched: {failures[-1]}",
        hint="It comes from the machine's Maven repository: check the network, or set penstock.kafka.jars to a folder "
        f"with {', '.join(f'{name}-{number}.jar' for _, name, number in known[0])}.",
    )


def _local(given: Sequence[str]) -> list[Path]:
    found: list[Path] = []
    for each in given:
        path = Path(each).expanduser()
        jars = sorted(path.glob("*.jar")) if path.is_dir() else [path] if path.is_file() else []
        if not jars:
            raise EnvironmentProblemError(
                f"penstock.kafka.jars names {each!r}, where there are no jar files",
                hint="Give a folder with the four jars of the connector, or the jar files themselves.",
            )
        found += jars
    return [path.absolute() for path in found]


def is_loaded(session: SparkSession) -> bool:
    """Whether a session has the connector."""
    virtual_machine = session._jvm  # noqa: SLF001 - there is no public way to ask
    assert virtual_machine is not None  # noqa: S101 - of a classic session
    try:
        loader = virtual_machine.java.lang.Thread.currentThread().getContextClassLoader()
        virtual_machine.java.lang.Class.forName(_CLASS, False, loader)  # noqa: FBT003 - Java's signature
    except Exception:  # noqa: BLE001 - py4j wraps the ClassNotFoundException
        return False
    return True


def _add_to_driver(session: SparkSession, jars: Sequence[Path]) -> None:
    """Where all of the driver's threads find the jars.

    ADD JAR shows them to queries of the session only, but the thread that takes in the results of tasks is none of
    them, and real-time mode sends the connector's offsets that way.
    """
    virtual_machine = session._jvm  # noqa: SLF001 - there is no public way
    assert virtual_machine is not None  # noqa: S101 - of a classic session
    loader = virtual_machine.java.lang.Thread.currentThread().getContextClassLoader()
    while loader is not None:
        if "MutableURLClassLoader" in loader.getClass().getName():
            for jar in jars:
                loader.addURL(virtual_machine.java.net.URI(jar.as_uri()).toURL())
            return
        loader = loader.getParent()


def add_connector(session: SparkSession, given: Sequence[str] = ()) -> None:
    """Gives a session the connector unless it has it, on the driver and on all executors.

    Args:
        session: Running or new.
        given: ``penstock.kafka.jars``.

    Raises:
        EnvironmentProblemError: There are no jars, or Spark does not take them.
    """
    if is_loaded(session):
        return
    jars = connector_jars(given)
    _add_to_driver(session, jars)
    for jar in jars:
        session.sql(f"ADD JAR '{jar.as_uri()}'")
    try:
        session.read.format("kafka")
        session._jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(  # type: ignore[union-attr]  # noqa: SLF001
            "kafka",
            session._jsparkSession.sessionState().conf(),  # noqa: SLF001
        )
    except Exception as error:
        raise EnvironmentProblemError(
            f"Spark {session.version} does not load its Kafka connector from {jars[0].parent}: "
            f"{str(error).splitlines()[0]}",
            hint=_remedy(jars),
        ) from error


def _remedy(jars: Sequence[Path]) -> str:
    """What to do when Spark does not load the connector from these."""
    wanted = [name for _, name, _ in next(iter(COORDINATES.values()))[0]]
    missing = [name for name in wanted if not any(jar.name.startswith(name) for jar in jars)]
    if missing:
        return f"Among the jars of penstock.kafka.jars there is no {', no '.join(missing)}."
    return (
        "The jars must be of the Spark version that runs; start a new session, or name others in penstock.kafka.jars."
    )
