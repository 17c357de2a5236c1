"""`penstock doctor` over brokers: what is there, what is missing, and what to do, each under its name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from brokers import running_broker
from lesser_broker import LesserBroker
from penstock import KafkaStreams, StreamsBuilder
from penstock.cli.main import app
from penstock.errors import LogError
from penstock.log.kafka.checkup.checkup import first_answer, reach_brokers
from penstock.log.kafka.client_settings import ClientSettings
from penstock.log.kafka.refused_access import ClusterAccess
from penstock.log.kafka.wire.connection import BrokerConnection
from penstock.log.open import open_log
from penstock.tools.broker.broker_settings import free_port
from penstock.tools.broker.process import Broker

from .conftest import Bench

Findings = dict[str, dict[str, Any]]
CARELESS = {
    "unclean.leader.election.enable": "true",
    "min.insync.replicas": "2",
    "offsets.retention.minutes": "10",
    "transactional.id.expiration.ms": "60000",
    "transaction.max.timeout.ms": "5000",
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "message.max.bytes": "1000",
}
TOPOLOGY = """\
from penstock import StreamsBuilder

builder = StreamsBuilder()
builder.stream("{source}").group_by(lambda k, v: v).count(name="counts").to_stream().map_values(str).to("{sink}")
topology = builder.build()
config = {{"application.id": "{application}", "default.key.serde": "string", "default.value.serde": "string"}}
"""


def doctor(*options: str) -> tuple[int, Findings]:
    """The exit code, and the findings about Kafka by their names."""
    called = CliRunner().invoke(app, ["doctor", "--json", *options])
    findings = {each["name"]: each for each in json.loads(called.output)["findings"]}
    first = list(findings).index("cryptography")
    return called.exit_code, {name: findings[name] for name in list(findings)[first + 1 :]}


def verdicts(findings: Findings, verdict: str) -> set[str]:
    return {name for name, finding in findings.items() if finding["verdict"] == verdict}


def test_a_broker_that_works(kafka_bench: Bench) -> None:
    kafka_bench.log.create_topic("looked-at")
    kafka_bench.write("looked-at", [("k", "v", 0)])
    before = {topic.name for topic in kafka_bench.log.topics()}
    code, found = doctor("--bootstrap-servers", kafka_bench.url)
    assert code == 0
    assert not verdicts(found, "missing")
    assert found[f"broker {kafka_bench.url}"]["found"].startswith("answers; ")
    assert " was read" in found[f"broker {kafka_bench.url}"]["found"]
    assert "speaks the protocol of Kafka 4." in found[f"broker 1 at {kafka_bench.url}"]["found"]
    assert {found[name]["verdict"] for name in ("transactions", "streams groups", "transaction.version")} == {"ok"}
    assert found["clock of the controller"]["verdict"] == "ok"
    assert verdicts(found, "warning") >= {"default.replication.factor", "transaction.state.log.replication.factor"}
    assert {topic.name for topic in kafka_bench.log.topics()} == before


def test_what_does_not_work_has_a_name_and_a_remedy() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    code, found = doctor("-b", nobody)
    assert code == 1
    assert list(found) == [f"broker {nobody}"]
    assert "does not answer: " in found[f"broker {nobody}"]["found"]
    assert "penstock broker start" in found[f"broker {nobody}"]["remedy"]
    code, found = doctor("-b", "topics.db")
    assert (code, list(found)) == (1, ["broker topics.db"])
    told = CliRunner().invoke(app, ["doctor", "shop"])
    assert told.exit_code != 0


def test_an_address_that_is_advertised_in_vain(kafka_bench: Bench) -> None:
    """The cluster's own address answers, and that of a broker does not: no other error of Kafka's clients is as dark."""
    settings = ClientSettings.of(kafka_bench.url)
    access = ClusterAccess(settings)
    dead = free_port()
    first, problems = first_answer([f"127.0.0.1:{dead}", "no-port", kafka_bench.url], settings.kafka_python(), access)
    assert first is not None
    assert [(each.name, each.verdict) for each in problems] == [
        (f"broker 127.0.0.1:{dead}", "warning"), ("broker no-port", "warning")
    ]  # fmt: skip
    host, port = first.address.split(":")
    first.close()
    brokers = {1: (host, int(port)), 2: ("127.0.0.1", dead), 3: ("no.such.host.invalid", 9092)}
    reached, results = reach_brokers(brokers, settings.kafka_python(), access)
    for each in reached:
        each.connection.close()
    assert [each.node for each in reached] == [1]
    assert [each.verdict for each in results] == ["ok", "missing", "missing"]
    assert all("advertised.listeners" in each.remedy for each in results[1:])


@pytest.fixture(scope="module")
def careless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("careless"), more=CARELESS) as broker:
        yield broker


def test_settings_that_lose_data(careless: Broker) -> None:
    code, found = doctor("-b", careless.settings.bootstrap_servers)
    assert code == 1
    assert verdicts(found, "missing") == {"min.insync.replicas", "transaction.max.timeout.ms"}
    assert verdicts(found, "warning") >= {
        "unclean.leader.election.enable", "offsets.retention.minutes", "transactional.id.expiration.ms",
        "group.coordinator.rebalance.protocols", "message.max.bytes", "auto.create.topics.enable",
    }  # fmt: skip
    assert "streams" in found["group.coordinator.rebalance.protocols"]["remedy"]
    code, found = doctor("-b", careless.settings.bootstrap_servers, "-c", "producer.transaction.timeout.ms=4000")
    assert verdicts(found, "missing") == {"min.insync.replicas"}


def test_an_application_by_its_topology_and_by_its_id(kafka_bench: Bench, tmp_path: Path) -> None:
    log, url = kafka_bench.log, kafka_bench.url
    names = {"application": "examined", "source": "examined-in", "sink": "examined-out"}
    file = tmp_path / "examined.py"
    file.write_text(TOPOLOGY.format(**names))
    code, found = doctor("-b", url, str(file))
    assert code == 1
    assert verdicts(found, "missing") == {"topic examined-in"}
    assert "penstock topics create" in found["topic examined-in"]["remedy"]

    log.create_topic("examined-in", 3, {"retention.ms": "60000"})
    code, found = doctor("-b", url, f"{file}:topology")
    assert code == 0, verdicts(found, "missing")
    assert "stopped for 0.0167 h loses records" in found["topic examined-in"]["remedy"]
    assert found["topic examined-out"]["found"] == "sink; the start creates it"
    changelog = "examined-KSTREAM-AGGREGATE-STATE-STORE-0000000002-changelog"
    assert found[f"topic {changelog}"]["found"] == "compacted topic; the start creates it"
    rights = {"rights: group", "rights: transactions", "rights: own topics", "new topics", "rights: topics"}
    assert rights <= verdicts(found, "ok")

    log.create_topic(changelog, 5, {"cleanup.policy": "delete"})
    log.append("examined-in", 0, _records(10))
    log.commit_offsets("examined", {next(iter(log.end_offsets(["examined-in"]))): 2})
    log.delete_records("examined-in", 0, 7)
    code, found = doctor("-b", url, str(file))
    assert code == 1
    assert verdicts(found, "missing") == {f"topic {changelog}", "committed offsets of the group"}
    assert "set it to compact" in found[f"topic {changelog}"]["remedy"]
    assert "The topology needs 3 partitions" in found[f"topic {changelog}"]["remedy"]
    assert found["committed offsets of the group"]["found"] == "examined-in-0: 5 records are gone"

    code, by_id = doctor("-b", url, "examined")
    assert code == 1
    assert verdicts(by_id, "missing") == verdicts(found, "missing")
    assert by_id["topic examined-in"]["found"] == found["topic examined-in"]["found"]


def _records(count: int) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_pydict({"timestamp": list(range(count)), "key": [b"k"] * count, "value": [b"v"] * count})


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    more = {"log.cleaner.backoff.ms": "200", "auto.create.topics.enable": "false"}
    with running_broker(tmp_path_factory.mktemp("quick"), more=more) as broker:
        yield broker


def test_a_trial_leaves_nothing(quick: Broker) -> None:
    url = quick.settings.bootstrap_servers
    code, found = doctor("-b", url, "--try", "shop")
    assert code == 0, verdicts(found, "missing")
    tried = {name: finding for name, finding in found.items() if name.startswith("trial: ")}
    assert [name.split(" shop-penstock-doctor")[0] for name in tried] == [
        "trial: create", "trial: write in a transaction", "trial: read committed records",
        *(name for name in tried if "clock" in name), "trial: compaction", "trial: delete records", "trial: delete",
    ]  # fmt: skip
    assert verdicts(tried, "ok") == set(tried)
    assert found["auto.create.topics.enable"]["verdict"] == "ok"
    with open_log(url) as log:
        assert log.topics() == []


def test_quotas_of_this_client(quick: Broker) -> None:
    from kafka.protocol.admin import AlterClientQuotasRequest as Request

    settings = ClientSettings.of(quick.settings.bootstrap_servers).kafka_python()
    host, port = quick.settings.bootstrap_servers.split(":")
    connection = BrokerConnection(host, int(port), settings)
    entry = Request.EntryData
    entities = ((("client-id", "slow"), 2048.0), (("client-id", "other"), 1.0))
    entries = [
        entry(
            entity=[entry.EntityData(entity_type=kind, entity_name=name)],
            ops=[entry.OpData(key="producer_byte_rate", value=rate, remove=False)],
        )
        for (kind, name), rate in entities
    ]
    answer = connection.ask(Request(entries=entries, validate_only=False))
    connection.close()
    assert [each.error_code for each in answer.entries] == [0, 0]
    quotas = doctor("-b", quick.settings.bootstrap_servers, "-c", "client.id=slow")[1]["quotas"]
    assert (quotas["verdict"], quotas["found"]) == ("warning", "client-id slow: producer_byte_rate 2 KiB/s")
    assert doctor("-b", quick.settings.bootstrap_servers)[1]["quotas"]["verdict"] == "ok"


def test_brokers_without_transactions(kafka_bench: Bench, spark: Any, tmp_path: Path) -> None:
    """A start says so before any record is processed, and the doctor before any start."""
    kafka_bench.log.create_topic("lesser-in")
    builder = StreamsBuilder()
    builder.stream("lesser-in").to("lesser-out")
    with LesserBroker(int(kafka_bench.url.rpartition(":")[2]), {22, 65, 88}) as broker:
        config = {"application.id": "lesser", "bootstrap.servers": broker.url, "state.dir": str(tmp_path)}
        with pytest.raises(LogError) as caught:
            KafkaStreams(builder.build(), config, session=spark).run(until="latest")
        code, found = doctor("-b", broker.url)
    assert "they have no transactions (InitProducerId)" in caught.value.message
    assert "penstock doctor -b" in caught.value.hint
    assert code == 1
    assert verdicts(found, "missing") == {"transactions"}
    assert {"hanging transactions", "streams groups"} <= verdicts(found, "warning")
    assert "lesser-out" not in {topic.name for topic in kafka_bench.log.topics()}


def test_brokers_that_delete_no_records_are_good_enough(kafka_bench: Bench) -> None:
    with LesserBroker(int(kafka_bench.url.rpartition(":")[2]), {21}) as broker:
        found = doctor("-b", broker.url, "shop")[1]
    assert found["deletion of records"]["verdict"] == "warning"
    assert found["rights: own topics"]["verdict"] == "ok"
    assert "rights" not in found
