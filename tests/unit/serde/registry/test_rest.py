"""The REST interface, asked by confluent-kafka's client over HTTP, and by the shapes that Java's client reads."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError
from typer.testing import CliRunner

from penstock.errors import ConfigError, EnvironmentProblemError, PenstockError
from penstock.serde.registry import Registry
from penstock.serde.registry.routes import handle
from penstock.serving import Certificate
from penstock.tools.registry_server import server

INT = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'
MORE = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int"}]}'


@contextmanager
def running(registry, **settings):
    made = server(registry, port=0, **settings)
    made.start()
    try:
        yield f"http://127.0.0.1:{made.port}"
    finally:
        made.close()


@pytest.fixture(scope="module")
def url():
    with running(Registry()) as found:
        yield found


@pytest.fixture
def client(url):
    with SchemaRegistryClient({"url": url}) as made:
        yield made


def code(call, *arguments, **more):
    with pytest.raises(SchemaRegistryError) as refused:
        call(*arguments, **more)
    return refused.value.http_status_code, refused.value.error_code


def test_a_subject_from_first_version_to_deletion(client, url):
    subject = "a/b c-value"
    first = client.register_schema(subject, Schema(INT, "AVRO"))
    assert client.register_schema("other", Schema(INT.replace(" ", ""), "AVRO")) == first
    assert subject in client.get_subjects()
    latest = client.get_latest_version(subject)
    assert (latest.version, latest.schema_id, json.loads(latest.schema.schema_str)) == (1, first, json.loads(INT))
    assert client.lookup_schema(subject, Schema(INT, "AVRO")).version == 1
    assert not client.test_compatibility(subject, Schema(MORE, "AVRO"))
    assert code(client.register_schema, subject, Schema(MORE, "AVRO")) == (409, 409)
    assert client.set_compatibility(subject, "FORWARD") == {"compatibility": "FORWARD"}
    assert client.get_compatibility(subject) == "FORWARD"
    second = client.register_schema(subject, Schema(MORE, "AVRO"))
    assert client.get_versions(subject) == [1, 2]
    with SchemaRegistryClient({"url": url}) as fresh:
        assert json.loads(fresh.get_schema(second).schema_str) == json.loads(MORE)
        assert json.loads(fresh.get_schema_by_guid(latest.guid).schema_str) == json.loads(INT)
    assert client.delete_version(subject, 1) == 1
    assert code(client.delete_version, subject, 1) == (404, 40406)
    assert code(client.delete_subject, subject, permanent=True) == (404, 40405)
    assert client.delete_subject(subject) == [2]
    assert code(client.delete_subject, subject) == (404, 40404)
    assert client.delete_subject(subject, permanent=True) == [1, 2]
    assert code(client.get_versions, subject) == (404, 40401)


def test_error_codes(client):
    client.register_schema("codes", Schema(INT, "AVRO"))
    assert code(client.get_latest_version, "nobody") == (404, 40401)
    assert code(client.get_version, "codes", 9) == (404, 40402)
    assert code(client.get_version, "codes", "x") == (422, 42202)
    assert code(client.get_schema, 999) == (404, 40403)
    assert code(client.lookup_schema, "codes", Schema('"int"', "AVRO")) == (404, 40403)
    assert code(client.register_schema, "codes", Schema("{", "AVRO")) == (422, 42201)
    assert code(client.set_compatibility, "codes", "SIDEWARD") == (422, 42203)
    assert code(client.get_compatibility, "nobody") == (404, 40408)
    assert code(client.update_mode, "codes", "SLEEPING") == (422, 42204)
    assert code(client.get_mode, "nobody") == (404, 40409)
    client.update_mode("codes", "READONLY")
    assert client.get_mode("codes") == "READONLY"
    assert code(client.register_schema, "codes", Schema('"int"', "AVRO")) == (422, 42205)
    client.delete_mode("codes")
    assert client.get_global_mode() == "READWRITE"


def test_what_else_is_answered(client):
    inner = client.register_schema("inner", Schema('{"type": "enum", "name": "E", "symbols": ["A"]}', "AVRO"))
    assert inner
    outer = Schema(
        '{"type": "record", "name": "O", "fields": [{"name": "e", "type": "E"}]}',
        "AVRO",
        [SchemaReference("E", "inner", 1)],
    )
    found = client.register_schema("outer", outer)
    assert client.get_referenced_by("inner", 1) == [found]
    assert client.get_subjects_by_schema_id(found) == ["outer"]
    assert [(v.subject, v.version) for v in client.get_schema_versions(found)] == [("outer", 1)]
    assert set(client.get_schema_types()) == {"AVRO", "JSON", "PROTOBUF"}
    assert client.get_subjects(subject_prefix="out") == ["outer"]


def test_shapes_of_java():
    """Field names of the requests and answers of Java's RestService."""
    registry = Registry()
    status, answer = handle(registry, "POST", "/subjects/t-value/versions", {}, {"schema": INT})
    assert status == 200
    assert {"id": 1, "version": 1}.items() <= answer.items()
    assert "schemaType" not in answer
    status, answer = handle(registry, "GET", "/schemas/ids/1", {"fetchMaxId": "false", "subject": "t-value"}, None)
    assert answer["schema"] == INT
    status, answer = handle(registry, "POST", "/subjects/t-value", {"normalize": "false"}, {"schema": INT})
    assert (answer["subject"], answer["version"], answer["id"]) == ("t-value", 1, 1)
    json_schema = {"schema": "{}", "schemaType": "JSON", "references": []}
    assert handle(registry, "POST", "/subjects/j/versions", {}, json_schema)[1]["schemaType"] == "JSON"
    assert handle(registry, "GET", "/config", {}, None) == (200, {"compatibilityLevel": "BACKWARD"})
    assert handle(registry, "PUT", "/config", {}, {"compatibility": "FULL"}) == (200, {"compatibility": "FULL"})
    assert (
        handle(registry, "GET", "/config/t-value", {"defaultToGlobal": "true"}, None)[1]["compatibilityLevel"] == "FULL"
    )
    body = {"schema": '"int"'}
    status, answer = handle(
        registry, "POST", "/compatibility/subjects/t-value/versions/latest", {"verbose": "true"}, body
    )
    assert answer["is_compatible"] is False
    assert answer["messages"]
    assert handle(registry, "GET", "/nothing", {}, None)[0] == 404
    assert handle(registry, "PUT", "/subjects", {}, None)[0] == 405
    proto = {"schema": 'syntax = "proto3"; message M {}', "schemaType": "PROTOBUF"}
    assert handle(registry, "POST", "/subjects/p/versions", {}, proto)[0] == 200


def test_users_and_what_is_not_json():
    import httpx

    with running(Registry(), users={"ann": "secret"}) as url:
        assert httpx.get(f"{url}/subjects").status_code == 401
        assert httpx.get(f"{url}/subjects", auth=("ann", "wrong")).status_code == 401
        assert httpx.get(f"{url}/subjects", auth=("ann", "secret")).json() == []
        as_json = {"content-type": "application/json"}
        assert httpx.post(f"{url}/subjects/x", auth=("ann", "secret"), content=b"{", headers=as_json).status_code == 400
        assert httpx.get(f"{url}/docs").status_code == 401
        assert httpx.get(f"{url}/docs", auth=("ann", "secret")).status_code == 200
        with SchemaRegistryClient({"url": url, "basic.auth.user.info": "ann:secret"}) as allowed:
            assert allowed.get_subjects() == []


def test_a_registry_in_a_file(tmp_path):
    file = tmp_path / "some" / "registry.db"
    registry = Registry(file)
    registry.set_config("", {"compatibility": "NONE"})
    handle(registry, "POST", "/subjects/s/versions", {}, {"schema": INT})
    registry.close()
    registry = Registry(file)
    assert registry.subjects() == ["s"]
    assert registry.level("s") == "NONE"
    assert handle(registry, "POST", "/subjects/s/versions", {}, {"schema": MORE})[1]["id"] == 2
    registry.close()
    with pytest.raises(PenstockError, match="cannot hold a registry"):
        Registry(tmp_path)


def test_schemas_that_come_back_after_deletion_keep_their_ids():
    registry = Registry()
    handle(registry, "POST", "/subjects/s/versions", {}, {"schema": INT})
    registry.delete_subject("s")
    again = handle(registry, "POST", "/subjects/s/versions", {}, {"schema": INT})[1]
    assert (again["id"], again["version"]) == (1, 2)


def test_the_command(client, url):
    from penstock.cli.main import app

    client.register_schema("shown", Schema(INT, "AVRO"))
    listed = CliRunner().invoke(app, ["registry", "subjects", "--url", url])
    assert "shown  version 1" in listed.output
    found = json.loads(CliRunner().invoke(app, ["registry", "subjects", "--url", url, "--json"]).output)
    assert {"subject": "shown", "version": 1} in [{k: row[k] for k in ("subject", "version")} for row in found]
    taken = url.rpartition(":")[2]
    assert isinstance(
        CliRunner().invoke(app, ["registry", "start", "--port", taken]).exception, EnvironmentProblemError
    )
    for given in ("ann", "ann:secret"):
        refused = CliRunner().invoke(app, ["registry", "start", "--user", given]).exception
        assert isinstance(refused, ConfigError)
        assert "secret" not in str(refused)


def test_what_is_deleted_can_be_found_and_restored(client, url):
    from penstock.cli.main import app

    subject = "undeleted"
    schema_id = client.register_schema(subject, Schema(INT, "AVRO"))

    def command(*words: str) -> str:
        done = CliRunner().invoke(app, ["registry", *words, "--url", url])
        if done.exception is not None:
            raise done.exception
        return done.output

    with pytest.raises(PenstockError, match="has no deleted version"):
        command("restore", subject)
    with pytest.raises(PenstockError, match="was not deleted first") as early:
        command("delete", subject, "--permanently", "--yes")
    assert "in this order" in str(early.value.hint)
    assert "deleted undeleted, version 1" in command("delete", subject, "--yes")
    assert "undeleted  version 1" in command("subjects", "--deleted")
    assert subject not in command("subjects")
    assert "as version 2" in command("restore", subject)
    assert client.get_latest_version(subject).schema_id == schema_id
    with pytest.raises(PenstockError, match="is not deleted"):
        command("restore", subject, "--version", "2")
    assert client._rest_client.get(f"subjects/{subject}/versions?deletedOnly=true") == [1]  # its own name is not sent
    listed = [row["version"] for row in client._rest_client.get("schemas?subjectPrefix=undeleted&deleted=true")]
    assert listed == [1, 2]
    assert "permanently" in command("delete", subject, "--version", "1", "--permanently", "--yes")
    assert client.get_versions(subject, deleted=True) == [2]


def test_over_tls_with_the_names_of_java(tmp_path, monkeypatch):
    import trustme

    from penstock.serde import Serdes
    from penstock.serde.schemas import client as clients

    monkeypatch.setattr(clients, "_clients", {})
    monkeypatch.setenv("REGISTRY_USER", "ann:secret")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    with running(Registry(), certificate=Certificate(str(tmp_path / "server.pem")), users={"ann": "secret"}) as url:
        settings = {
            "schema.registry.url": url.replace("http:", "https:"),
            "schema.registry.ssl.truststore.location": str(tmp_path / "ca.pem"),
            "schema.registry.ssl.truststore.type": "PEM",
            "basic.auth.credentials.source": "USER_INFO",
            "basic.auth.user.info": "${env:REGISTRY_USER}",
        }
        serde = Serdes.avro("string", registry=settings).for_topic("t", "value")
        assert serde.deserialize(serde.serialize("x")) == "x"
        wrong = {**settings, "basic.auth.user.info": "ann:wrong"}
        with pytest.raises(PenstockError, match="401") as refused:
            Serdes.avro("string", registry=wrong).for_topic("t", "value").serialize("x")
        assert "wrong" not in str(refused.value)
        for each in clients._clients.values():  # the server's end waits half a minute for their good-bye
            each._client.__exit__(None, None, None)
    for source in ("SASL_INHERIT", "STATIC"):
        with pytest.raises(ConfigError, match=f"credentials.source is {source}"):
            Serdes.avro("string", registry={**settings, "basic.auth.credentials.source": source})
    jks = {**settings, "schema.registry.ssl.truststore.type": "JKS"}
    with pytest.raises(ConfigError, match="only PEM"):
        Serdes.avro("string", registry=jks).for_topic("t", "value").serialize("x")
