"""SASL/PLAIN, SCRAM-SHA-512 and mTLS over a broker with ACLs: an application with just its rights, and what is refused."""

from __future__ import annotations

import itertools
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from typer.testing import CliRunner

from brokers import running_broker
from eventually import eventually
from penstock import KafkaStreams, StreamsBuilder
from penstock.cli.main import app as penstock
from penstock.console.applications import Applications
from penstock.console.web.page import Visit
from penstock.console.web.pages.log_pages import topic_facts
from penstock.console.web.site import Site
from penstock.errors import AuthenticationError, AuthorizationError, LogError, LogUnavailableError
from penstock.log.base import TopicPartition as Place
from penstock.log.open import open_log
from penstock.tools.broker.process import Broker
from token_endpoint import TokenEndpoint

NAMES = itertools.count()
SHORT = {"task.timeout.ms": "4000"}  # how long to try what may pass
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
TOPIC, GROUP, TRANSACTION = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
# The table of docs/how-to/security.md, for an application "app" with the input "in" and the output "out".
RIGHTS = (
    (TOPIC, "in", LITERAL, "READ"),
    (TOPIC, "out", LITERAL, "WRITE"),
    (TOPIC, "app-", PREFIXED, "CREATE"),
    (TOPIC, "app-", PREFIXED, "READ"),
    (TOPIC, "app-", PREFIXED, "WRITE"),
    (TOPIC, "app-", PREFIXED, "DELETE"),
    (GROUP, "app", LITERAL, "READ"),
    (TRANSACTION, "app-", PREFIXED, "WRITE"),
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    users = {"alice": "wonder", "admin": "secret"}
    with running_broker(tmp_path_factory.mktemp("guarded"), users, acls=True) as running:
        yield running


@pytest.fixture(scope="module")
def endpoint():
    with TokenEndpoint({"robot": "secret"}) as running:
        yield running


@pytest.fixture(scope="module")
def superuser(broker):
    with open_log(broker.settings.bootstrap_servers) as log:
        yield log


def access(broker: Broker, how: str, password: str = "wonder") -> dict[str, str]:
    """Settings of an application, by Java's names."""
    listeners, certificates = broker.settings.listeners(), broker.settings.certificates
    if how == "mtls":
        return {
            "bootstrap.servers": f"127.0.0.1:{listeners['SSL']}",
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(certificates / "ca.pem"),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates / "client.pem"),
        }
    module = "plain.PlainLoginModule" if how == "PLAIN" else "scram.ScramLoginModule"
    return {
        "bootstrap.servers": f"127.0.0.1:{listeners['SASL_PLAINTEXT']}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": how,
        "sasl.jaas.config": f"org.apache.kafka.common.security.{module} required "
        f'username="alice" password="{password}";',
    }


def robot(broker: Broker, endpoint: TokenEndpoint, secret: str) -> dict[str, str]:
    """Settings of one who shows tokens."""
    return {
        "bootstrap.servers": access(broker, "PLAIN")["bootstrap.servers"],
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": endpoint.url,
        "sasl.oauthbearer.client.credentials.client.id": "robot",
        "sasl.oauthbearer.client.credentials.client.secret": secret,
    }


def opened(settings: dict[str, str]):
    return open_log(settings["bootstrap.servers"], settings | SHORT)


def rule(principal, kind, name, pattern, operation):
    return AclBinding(kind, name, pattern, principal, "*", AclOperation[operation], AclPermissionType.ALLOW)


def grant(broker, principal, rights):
    admin = AdminClient({"bootstrap.servers": broker.settings.bootstrap_servers})
    rules = [rule(principal, *each) for each in rights]
    for future in admin.create_acls(rules).values():
        future.result(60)
    wanted = {str(each) for each in rules}  # the controller has them; the broker shows them a moment later
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, principal, None, AclOperation.ANY, AclPermissionType.ANY
    )
    eventually(lambda: wanted <= {str(each) for each in admin.describe_acls(every).result(60)})


def named(application, source, sink):
    """The rights of the table, with these names."""
    return [(kind, {"in": source, "out": sink}.get(name, name.replace("app", application)), pattern, operation)
            for kind, name, pattern, operation in RIGHTS]  # fmt: skip


def records(values):
    return pa.RecordBatch.from_pydict(
        {"timestamp": list(range(len(values))), "key": [b"k"] * len(values), "value": [v.encode() for v in values]}
    )


def application(settings, name, source, sink, root, spark):
    builder = StreamsBuilder()
    builder.stream(source).group_by(lambda k, v: v).count(name="counts").to_stream().map_values(str).to(sink)
    config = {
        "application.id": name,
        "state.dir": str(root),
        "default.key.serde": "string",
        "default.value.serde": "string",
        **settings,
        **SHORT,
    }
    return KafkaStreams(builder.build(), config, session=spark)


@pytest.mark.parametrize("how", ["PLAIN", "SCRAM-SHA-512", "mtls"])
def test_an_application_with_just_the_rights_of_the_table(broker, superuser, spark, tmp_path, how):
    number = next(NAMES)
    name, source, sink = f"app{number}", f"in{number}", f"out{number}"
    for topic in (source, sink):
        superuser.create_topic(topic, 2)
    superuser.append(source, 0, records(["a", "b", "a"]))
    grant(broker, "User:client" if how == "mtls" else "User:alice", named(name, source, sink))
    application(access(broker, how), name, source, sink, tmp_path, spark).run(until="latest")
    superuser.settled_ends([Place(sink, partition) for partition in range(2)])
    rows = [
        row
        for partition in range(2)
        for row in superuser.read(sink, partition, 0, isolation="read_committed").records.to_pylist()
    ]
    assert sorted((row["key"], row["value"]) for row in rows) == [(b"a", b"2"), (b"b", b"1")]
    assert {each.topic for each in superuser.committed_offsets(name)} >= {source}


@pytest.mark.parametrize(
    ("without", "says"),
    [
        ((TOPIC, "in"), "User:alice may not DESCRIBE topic {in}"),
        ((TOPIC, "out"), "User:alice may not CREATE topic {out}"),
        ((TOPIC, "app-"), "User:alice may not CREATE topic {app}-"),
        ((GROUP, "app"), "User:alice may not DESCRIBE group {app}"),
        ((TRANSACTION, "app-"), "User:alice may not WRITE transactional-id {app}-"),
    ],
)
def test_a_missing_right_is_named(broker, superuser, spark, tmp_path, without, says):
    number = next(NAMES)
    names = {"in": f"in{number}", "out": f"out{number}", "app": f"app{number}"}
    for topic in ("in", "out"):
        superuser.create_topic(names[topic], 1)
    superuser.append(names["in"], 0, records(["a"]))
    dropped = (without[0], names.get(without[1], without[1].replace("app", names["app"])))
    kept = [r for r in named(names["app"], names["in"], names["out"]) if (r[0], r[1]) != dropped]
    grant(broker, "User:alice", kept)
    app = application(access(broker, "SCRAM-SHA-512"), names["app"], names["in"], names["out"], tmp_path, spark)
    with pytest.raises(AuthorizationError) as caught:
        app.run(until="latest")
    assert says.format(**names) in str(caught.value)
    assert "kafka-acls --bootstrap-server" in caught.value.hint
    assert caught.value.facts["principal"] == "User:alice"


def test_rights_that_are_missing_are_all_named_before_a_record_is_processed(broker, superuser, spark, tmp_path):
    number = next(NAMES)
    name, source, sink = f"app{number}", f"in{number}", f"out{number}"
    for topic in (source, sink):
        superuser.create_topic(topic, 1)
    superuser.append(source, 0, records(["a"]))
    rights = [right for right in named(name, source, sink) if right[0] == GROUP or right[1].startswith("app")]
    grant(broker, "User:alice", [*rights, *((TOPIC, topic, LITERAL, "DESCRIBE") for topic in (source, sink))])
    app = application(access(broker, "PLAIN"), name, source, sink, tmp_path, spark)
    with pytest.raises(AuthorizationError) as caught:
        app.run(until="latest")
    assert f"User:alice may not READ topic {source}; may not WRITE topic {sink}" in caught.value.message
    assert f"--operation READ --topic {source}; kafka-acls" in caught.value.hint
    assert not superuser.committed_offsets(name)


def test_the_doctor_names_missing_rights_without_a_write(broker, superuser, tmp_path):
    number = next(NAMES)
    name, source, sink = f"app{number}", f"in{number}", f"out{number}"
    superuser.create_topic(source, 1)
    superuser.create_topic(sink, 1)
    topology, file = tmp_path / "shop.py", tmp_path / "client.properties"
    topology.write_text(
        "from penstock import StreamsBuilder\nbuilder = StreamsBuilder()\n"
        f"builder.stream({source!r}).to({sink!r})\nconfig = {{'application.id': {name!r}}}\n"
        "topology = builder.build()\n"
    )
    settings = access(broker, "PLAIN")
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def findings():
        where = ["-b", settings["bootstrap.servers"], "--command-config", str(file), "--json"]
        called = CliRunner().invoke(penstock, ["doctor", str(topology), *where])
        return called.exit_code, {each["name"]: each for each in json.loads(called.output)["findings"]}

    before = {topic.name for topic in superuser.topics()}
    code, found = findings()
    missing = {each for each in found if found[each]["verdict"] == "missing"}
    assert code == 1
    assert missing == {"rights: group", "rights: transactions", "new topics", "rights: topics"}
    assert f"may not READ topic {source}; may not WRITE topic {sink}" in found["rights: topics"]["found"]
    assert f"--operation CREATE --topic {name}- --resource-pattern-type prefixed" in found["new topics"]["remedy"]
    assert "DESCRIBE_CONFIGS on the cluster" in found["settings of brokers"]["remedy"]

    grant(broker, "User:alice", [(TRANSACTION, f"{name}-", PREFIXED, "WRITE"), (TOPIC, f"{name}-", PREFIXED, "WRITE")])
    code, found = findings()
    own = found["rights: own topics"]
    assert (code, own["verdict"]) == (1, "missing")
    assert f"may not READ topic {name}- (prefixed); may not DELETE topic {name}- (prefixed)" in own["found"]

    grant(broker, "User:alice", named(name, source, sink))
    code, found = findings()
    assert code == 0, [each for each in found.values() if each["verdict"] == "missing"]
    assert {topic.name for topic in superuser.topics()} == before


def test_reading_and_writing_without_rights(broker, superuser):
    superuser.create_topic("closed")
    superuser.append("closed", 0, records(["a"]))
    # Who may write to no topic at all is refused before a topic is named.
    grant(broker, "User:alice", [(TOPIC, "closed", LITERAL, "DESCRIBE"), (TOPIC, "another", LITERAL, "WRITE")])
    with opened(access(broker, "PLAIN")) as log:
        with pytest.raises(AuthorizationError, match="may not READ topic closed"):
            log.read("closed", 0, 0)
        with pytest.raises(AuthorizationError, match="may not WRITE topic closed"):
            log.append("closed", 0, records(["b"]))
        with pytest.raises(AuthorizationError, match="may not DELETE topic closed"):
            log.delete_topic("closed")


def test_a_page_of_a_topic_whose_records_may_not_be_read_has_no_size(broker, superuser, tmp_path):
    superuser.create_topic("unread", 1, {"retention.ms": "60000000"})
    superuser.append("unread", 0, records(["a", "b"]))
    grant(broker, "User:alice", [(TOPIC, "unread", LITERAL, each) for each in ("DESCRIBE", "DESCRIBE_CONFIGS")])
    with opened(access(broker, "PLAIN")) as log:
        applications = Applications(log, {"bootstrap.servers": log.url, "state.dir": str(tmp_path)})
        facts = topic_facts(Visit(Site(applications, log), "/topics/unread/facts", {"name": "unread"}))
        applications.close()
    assert (facts["bytes"], facts["partitions"][0]["end"]) == (None, 2)
    assert facts["info"].config["retention.ms"] == "60000000"


def test_commands_with_the_settings_of_a_file(broker, superuser, spark, tmp_path):
    superuser.create_topic("lines")
    own = [(TOPIC, "lines", LITERAL, "WRITE"), (TOPIC, "lines", LITERAL, "READ")]
    own += [(TOPIC, "connect-offsets", LITERAL, operation) for operation in ("CREATE", "READ", "WRITE")]
    grant(broker, "User:alice", [*own, (TRANSACTION, "connect-", PREFIXED, "WRITE")])
    settings = access(broker, "SCRAM-SHA-512")
    file, lines = tmp_path / "client.properties", tmp_path / "lines"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    lines.write_text("one\n")
    where = ["-b", settings["bootstrap.servers"], "--command-config", str(file)]

    def said(*words):
        called = CliRunner().invoke(penstock, [*words, *where])
        assert called.exit_code == 0, called.output
        return called.output

    said("topics", "produce", "lines", "--file", str(lines))
    said("connect", "file", "--once", "--path", str(lines), "--topic", "lines")
    assert said("topics", "consume", "lines").count("one") == 2
    assert "lines" in said("topics", "list")
    assert re.search(r"a record of \S+ was read", said("doctor"))


def test_tokens_of_an_identity_provider(broker, superuser, endpoint):
    superuser.create_topic("by-token")
    grant(broker, "User:robot", [(TOPIC, "by-token", LITERAL, "READ"), (TOPIC, "by-token", LITERAL, "WRITE")])
    with opened(robot(broker, endpoint, "secret")) as log:  # librdkafka lists, our own connections write and read
        assert [topic.name for topic in log.topics()] == ["by-token"]
        log.append("by-token", 0, records(["a"]))
        assert log.read("by-token", 0, 0).records.column("value").to_pylist() == [b"a"]


def test_tokens_of_a_function_reach_every_client_and_sparks_workers(broker, superuser, spark, tmp_path):
    number = next(NAMES)
    name, source, sink = f"app{number}", f"in{number}", f"out{number}"
    for topic in (source, sink):
        superuser.create_topic(topic, 2)
    superuser.append(source, 0, records(["a", "b", "a"]))
    grant(broker, "User:robot", named(name, source, sink))
    settings = {
        "bootstrap.servers": access(broker, "PLAIN")["bootstrap.servers"],
        "security.protocol": "SASL_PLAINTEXT",
        "penstock.kafka.identity": "robot_identity:token",
    }
    tests = Path(__file__).parents[1]
    for module in ("robot_identity.py", "token_endpoint.py"):  # as users bring a module to their executors
        spark.sparkContext.addPyFile(str(tests / module))
    application(settings, name, source, sink, tmp_path, spark).run(until="latest")
    superuser.settled_ends([Place(sink, partition) for partition in range(2)])
    rows = [row for partition in range(2) for row in superuser.read(sink, partition, 0).records.to_pylist()]
    assert sorted((row["key"], row["value"]) for row in rows) == [(b"a", b"2"), (b"b", b"1")]
    with opened(settings) as log:  # librdkafka's own clients
        assert source in {topic.name for topic in log.topics()}
        log.clients.admin().list_topics(timeout=30)
        with pytest.raises(AuthorizationError, match="may not"):
            log.delete_topic(source)


def test_who_is_not_known_is_told_why(broker, endpoint):
    scram = access(broker, "SCRAM-SHA-512", password="hunter2")
    tls = access(broker, "mtls")
    nobody = {name: value for name, value in tls.items() if "keystore" not in name}
    doubter = {name: value for name, value in tls.items() if "truststore" not in name}
    plain = f"127.0.0.1:{broker.settings.port}"
    cases = (
        (scram, "as user 'alice'.*invalid credentials.*\n.*Is the password right"),
        (scram | {"sasl.mechanism": "SCRAM-SHA-256"}, r"\n.*Set sasl\.mechanism"),
        (scram | {"bootstrap.servers": plain}, "authenticates nobody"),
        (nobody, "without a client certificate.*\n.*The broker requires a client certificate"),
        (doubter, "as CN=client.*\n.*Trust the authority"),
        (tls | {"bootstrap.servers": plain}, "does not use TLS"),
        (robot(broker, endpoint, "hunter2"), "invalid_client"),
        ({"bootstrap.servers": tls["bootstrap.servers"]}, "requires TLS or SASL"),
    )

    def told(settings: dict[str, str]) -> LogError:
        with opened(settings) as log, pytest.raises((AuthenticationError, LogUnavailableError)) as caught:
            log.topics()
        return caught.value

    with ThreadPoolExecutor(len(cases)) as pool:  # each waits for an answer that does not come
        errors = list(pool.map(told, [settings for settings, _ in cases]))
    for (_, says), error in zip(cases, errors, strict=True):
        assert re.search(says, str(error))
        assert "hunter2" not in str(error)
    assert [type(error) for error in errors] == [AuthenticationError] * 7 + [LogUnavailableError]
