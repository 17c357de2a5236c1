"""Requests and schemas that nobody sends by mistake: refused with 4xx, and none holds up the others."""

from __future__ import annotations

import json
import random
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from penstock.serde.registry import Registry
from penstock.serde.registry.model import StoredSchema
from penstock.serde.registry.routes import handle
from penstock.tools.registry_server import application

REQUESTS = 1_500
SUBJECTS = ("a", "b-value", "", "%00", "a%2Fb", "%FF", "%ED%A0%80", "é" * 300, "latest", "-1")
NUMBERS = ("1", "0", "-1", "latest", "x", "9" * 30, "%31", "1.5", "²")
PATHS = (
    "/subjects/{subject}", "/subjects/{subject}/versions", "/subjects/{subject}/versions/{number}", "/schemas/ids/{number}",
    "/schemas/ids/{number}/versions", "/schemas/guids/{subject}", "/schemas", "/subjects", "/config/{subject}", "/config",
    "/mode/{subject}", "/compatibility/subjects/{subject}/versions/{number}", "/compatibility/subjects/{subject}/versions",
    "/subjects/{subject}/versions/{number}/referencedby", "/subjects/{subject}/metadata", "//", "/x",
)  # fmt: skip
DEEP = '{"type":"array","items":' * 90 + '"int"' + "}" * 90
SCHEMAS = (
    '"int"', "{", "", "null", "7", '"\\ud800"', "[" * 9000, DEEP, '{"type": "record", "name": "R", "fields": 7}',
    '{"type": "record", "name": 7, "fields": []}', '{"type": "record", "name": "R", "fields": [{"name": "a", "type": []}]}',
    '{"type": "enum", "name": "E", "symbols": [[]]}', '{"type": "fixed", "name": "F", "size": "x"}', "NaN", "true", "[]",
    '{"properties": {"a": {"$ref": "#/title"}}, "title": "t"}', '{"$ref": "#/default", "default": {"properties": 5}}',
    '{"$schema": [], "type": "object"}', '{"$schema": "urn:no", "type": "object"}', '{"pattern": "("}', '{"items": [true]}',
    "CgA=", "syntax = \"proto3\"; message A {}", "CgF4IgYKATEqAQA=", "////", "\0",
)  # fmt: skip
BODIES = (None, 7, "x", [], {}, [{}], {"name": []}, 1e308, 2**70, True, "READONLY", "FULL", "IMPORT", "NONE")


def body(dice):
    if dice.random() < 0.1:
        return dice.choice(
            [b"{", b"[]", b"\xff", b"[" * 50_000, b'{"schema": NaN}', b'{"a": ' * 5000, b'"\\ud800"', b"7"]
        )
    found = {}
    if dice.random() < 0.8:
        found["schema"] = dice.choice([*SCHEMAS, *SCHEMAS, *BODIES])
    for name in ("schemaType", "references", "metadata", "ruleSet", "id", "compatibility", "mode"):
        if dice.random() < 0.3:
            found[name] = dice.choice([*BODIES, "AVRO", "JSON", "PROTOBUF"])
    return json.dumps(found).encode()


def test_malformed_requests_are_the_callers_fault():
    registry, dice = Registry(), random.Random(5)
    registry.register("a", StoredSchema('{"type": "object"}', "JSON"))
    seen = []
    with TestClient(application(registry), raise_server_exceptions=False) as client:
        for _ in range(REQUESTS):
            path = dice.choice(PATHS).format(subject=dice.choice(SUBJECTS), number=dice.choice(NUMBERS))
            names = ("offset", "limit", "deleted", "key", "value", "permanent", "verbose", "subjectPrefix")
            query = "&".join(f"{dice.choice(names)}={quote(dice.choice(NUMBERS))}" for _ in range(dice.randrange(3)))
            method = dice.choice(["GET", "POST", "PUT", "DELETE", "POST"])
            content = body(dice) if method in ("POST", "PUT") else None
            answer = client.request(method, f"{path}?{query}", content=content)
            seen.append(answer.status_code)
            allowed = {200, 400, 404, 405, 409, 422}
            assert answer.status_code in allowed, f"{answer.status_code}: {method} {path}?{query}\n{content!r}"
    assert seen.count(200) > REQUESTS / 20
    registry.close()


def test_a_recursive_schema_is_compared_once_a_pair():
    """Without a memory of pairs, each level of the recursion would multiply the comparisons."""
    schema = '{"properties":{"a":{"$ref":"#"},"b":{"$ref":"#"},"c":{"$ref":"#"}},"anyOf":[{"$ref":"#"},{"$ref":"#"}],"title":"%s"}'
    registry = Registry()
    registry.register("s", StoredSchema(schema % "x", "JSON"))
    assert registry.problems("s", StoredSchema(schema % "y", "JSON")) == []  # else refused for too many comparisons


def test_alternatives_that_failed_leave_nothing_behind():
    """What was found compatible while a circle was assumed to be so does not count once the circle is not."""
    old = '{"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"},"v":{"type":"string"}}}}}'
    new = old.replace("string", "integer")
    registry = Registry()
    registry.register("s", StoredSchema(old, "JSON"))
    assert any("/properties/v" in problem for problem in registry.problems("s", StoredSchema(new, "JSON")))
    assert registry.problems("s", StoredSchema(old.replace("{", '{"title":"t",', 1), "JSON")) == []


def test_a_schema_of_too_many_combinations_is_refused():
    def wide(mark):
        parts = [
            {"title": f"{mark}{n}", "properties": {"x": {"const": n}}, "required": [f"{mark}{n}"]} for n in range(300)
        ]
        return json.dumps({"anyOf": parts})

    registry = Registry()
    registry.register("s", StoredSchema(wide("a"), "JSON"))
    body = {"schema": wide("b"), "schemaType": "JSON"}
    status, document = handle(registry, "POST", "/compatibility/subjects/s/versions/1", {}, body)
    assert (status, document["error_code"]) == (422, 42201)
    assert "split the schema" in document["message"]


def test_references_in_a_circle_and_without_an_end():
    registry = Registry()
    registry.register("a", StoredSchema('{"type": "object"}', "JSON"))
    inner = [{"name": "a", "subject": "a", "version": 1}]
    handle(registry, "POST", "/subjects/b/versions", {}, {"schema": "{}", "schemaType": "JSON", "references": inner})
    registry._store.delete(registry.version("a", 1), permanently=True)
    back = StoredSchema.of_request(
        {"schema": "{}", "schemaType": "JSON", "references": [{"name": "b", "subject": "b", "version": 1}]}
    )
    registry._store.add_version("a", 1, registry._store.add_schema(back))
    body = {"schema": "{}", "schemaType": "JSON", "references": inner}
    status, document = handle(registry, "POST", "/subjects/c/versions", {}, body)
    assert (status, document["error_code"]) == (422, 42201)
    assert "leads back to itself" in document["message"]


def test_an_imported_id_that_is_taken():
    registry = Registry()
    registry.set_mode("", "IMPORT")
    registry.register("a", StoredSchema('"int"'), 7)
    status, document = handle(registry, "POST", "/subjects/b/versions", {}, {"schema": '"long"', "id": 7})
    assert (status, document["error_code"]) == (422, 42205)


def test_a_subject_without_a_name_is_not_the_global_setting():
    registry = Registry()
    assert handle(registry, "POST", "/subjects//versions", {}, {"schema": '"int"'})[0] == 404
    assert registry.subjects() == []


@pytest.mark.parametrize(
    "text", ["/*" * 300_000, 'option a = "' + '\\"' * 300_000, "option a = '" + "\\'" * 300_000 + "\\"]
)
def test_texts_of_protobuf_without_an_end_are_read_once(text):
    """Each sign is looked at once; a search for an end from each of them would take hours."""
    schema = StoredSchema(f'syntax = "proto3"; message A {{}} {text}', "PROTOBUF")
    registry = Registry()
    registry.register("a", schema)
    assert registry.problems("a", StoredSchema(f'syntax = "proto3"; message A {{}} {text} ', "PROTOBUF")) == []
