"""Malformed requests are refused with 4xx: none ends in an error of the server."""

from __future__ import annotations

import random
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from penstock.query.http.routes import make_app
from penstock.query.http.service import QueryService

REQUESTS = 600
STORES = ("counts", "plain", "windows", "sessions", "versions", "recent", "", "no", "counts\0", "a/b", "%", "ü" * 300)
PATHS = ("keys/{text}", "versions/{text}", "range", "prefix", "windows", "sessions", "", "keys", "keys/", "x/{text}")
TEXTS = (
    "", "k1", "-1", "9" * 30, "9" * 5000, "1e400", "nan", "\0", "\ud7ff", "ü" * 700, "k" * 600, "%00", "%", "[" * 9000,
    '{"a":' * 2000, "6b31", "zz", "azE=", "====", "-", "null", "true", '{"events": {"0": 1e999}}', '{"events": 7}',
    '{"events": {"x": 1}}', '{"events": {"0": "1"}}', "[]", "0x1", "١٢", "²", "9223372036854775807", "9223372036854775808",
)  # fmt: skip
NAMES = (
    "from", "to", "key", "prefix", "cursor", "limit", "reverse", "encoding", "as_of", "min_position", "max_staleness_ms",
    "route", "wait_ms",
)  # fmt: skip
ENCODINGS = ("auto", "string", "long", "double", "json", "hex", "base64", "roman")


def parameters(dice):
    found = []
    for _ in range(dice.randrange(5)):
        name = dice.choice(NAMES)
        if name == "wait_ms":
            found.append((name, dice.choice(["0", "1", "-1", "x", "99999999"])))
        elif name == "encoding":
            found.append((name, dice.choice(ENCODINGS)))
        else:
            found.append((name, dice.choice(TEXTS)))
    return "&".join(f"{name}={quote(text)}" for name, text in found)


@pytest.fixture
def client(state):
    with TestClient(make_app(QueryService(state)), raise_server_exceptions=False) as made:
        yield made


def test_malformed_requests_are_the_callers_fault(checkpoint, client):
    checkpoint.fill()
    dice = random.Random(11)
    answers = []
    for _ in range(REQUESTS):
        path = dice.choice(PATHS).format(text=quote(dice.choice(TEXTS), safe=""))
        url = f"/stores/{quote(dice.choice(STORES), safe='')}/{path}?{parameters(dice)}"
        if dice.random() < 0.05:
            url = f"/metadata/{quote(dice.choice(STORES), safe='')}/{quote(dice.choice(TEXTS), safe='')}"
        answer = client.get(url[:60_000])
        answers.append(answer.status_code)
        allowed = {200, 400, 404, 405, 503}
        assert answer.status_code in allowed, f"{answer.status_code}: {url[:300]}\n{answer.text[:300]}"
    assert answers.count(200) > REQUESTS / 50
