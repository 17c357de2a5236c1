"""The console at the port of a running application: beside the queries, behind the same guard, with a token of its own."""

from __future__ import annotations

import httpx
import pytest

from penstock.config import StreamsConfig
from penstock.console.applications import OwnApplication
from penstock.console.recorder import Recorder
from penstock.console.web.server import EmbeddedConsole
from penstock.errors import ConfigError
from penstock.log.open import open_log
from penstock.query.http.server import QueryServer
from penstock.query.http.service import QueryService

TOKEN = "t" * 40
BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture(params=["false", "true"])
def served(checkpoint, state, tmp_path, request):
    checkpoint.fill()
    url = f"sqlite:///{tmp_path / 'log.db'}"
    with open_log(url) as log:
        log.create_topic("orders", 1)
    config = StreamsConfig(
        {
            "application.id": "app",
            "bootstrap.servers": url,
            "penstock.console.token": TOKEN,
            "penstock.console.allow.writes": request.param,
        }
    )
    service = QueryService(state)
    service.alerts = lambda: alerts
    alerts: list[dict[str, str]] = []
    own = OwnApplication("app", Recorder.of(config, lambda: "RUNNING"), lambda: service)
    console = EmbeddedConsole(own, config)
    server = QueryServer(service, pages=[console.beside()])
    server.start()
    url = console.served_at(server.url, lambda: server.is_stopping)
    with httpx.Client(base_url=server.url, trust_env=False, timeout=120) as http:
        yield http, url, alerts, request.param == "true"
    server.close()
    console.close()


def test_queries_need_no_token_and_the_console_does(served):
    http, url, _, _ = served
    assert http.get("/stores").status_code == 200
    for path in ("/ui/", "/ui/topics", "/ui/api/v1/apps", "/ui/static/console.css", "/ui/live"):
        assert http.get(path).status_code == 401
    with httpx.Client(trust_env=False, follow_redirects=True, timeout=120) as browser:
        page = browser.get(url)
        assert page.status_code == 200
        assert "token=" not in str(page.url)
        assert 'href="/ui/topology"' in page.text
        assert browser.get(f"{url.partition('/ui')[0]}/ui").url.path == "/ui/"
        assert browser.get(f"{url.partition('/ui')[0]}/ui/topics").text.count("orders")
        assert "read only" in page.text or served[3]


def test_a_host_of_another_name_and_methods_that_change_are_refused_for_both(served):
    http, _, _, may_write = served
    for path in ("/stores", "/ui/", "/ui/api/v1/apps"):
        assert http.get(path, headers={"host": "evil.example", **BEARER}).status_code == 421
        for method in ("PUT", "DELETE", "PATCH"):
            assert http.request(method, path, headers=BEARER).status_code == 405
        marked = {"origin": str(http.base_url).rstrip("/"), "x-penstock": "1", **BEARER}
        assert http.post(path, json={}, headers=marked).status_code == 405
    sent = http.post("/ui/api/v1/topics/orders/messages", json={"value": "x"}, headers=marked)
    assert sent.status_code == (200 if may_write else 405)
    assert http.post("/ui/api/v1/topics/orders/messages", json={"value": "x"}, headers=BEARER).status_code in (403, 405)


def test_the_interface_answers_queries_of_the_applications_stores(served):
    http, _, _, _ = served
    direct = http.get("/stores/counts/keys/k1").json()
    through = http.get("/ui/api/v1/apps/app/stores/counts/keys/k1", headers=BEARER).json()
    assert through["value"] == direct["value"]
    assert {each["name"] for each in http.get("/ui/api/v1/apps/app/stores", headers=BEARER).json()} >= {"counts"}


def test_health_is_503_while_the_application_is_stuck(served):
    http, _, alerts, _ = served
    assert http.get("/health").json()["alerts"] == []
    alerts.append({"name": "skew"})
    assert http.get("/health").status_code == 200
    alerts.append({"name": "stuck"})
    answer = http.get("/health")
    assert (answer.status_code, [each["name"] for each in answer.json()["alerts"]]) == (503, ["skew", "stuck"])


def test_the_page_of_the_interface_loads_nothing_from_other_hosts(served):
    http, _, _, _ = served
    page = http.get("/docs")
    assert "GET /stores/{name}/range" in page.text
    assert "http" not in page.text
    assert "script" not in page.text


def test_without_a_token_of_its_own_the_console_has_the_one_that_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": f"sqlite:///{tmp_path / 'log.db'}"})
    own = OwnApplication("app", Recorder.of(config, lambda: "RUNNING"), lambda: None)
    addresses = []
    for _ in range(2):
        console = EmbeddedConsole(own, config)
        addresses.append(console.served_at("http://127.0.0.1:1", lambda: False))
        console.close()
    assert addresses[0] == addresses[1]
    assert len(addresses[0].partition("token=")[2]) >= 20


def test_users_of_a_file_and_a_registry_in_the_settings_are_those_of_the_console(checkpoint, state, tmp_path):
    checkpoint.fill()
    users = tmp_path / "users"
    users.write_text(f"vera:viewer:{'v' * 32}\nanna:admin:{'a' * 32}\n")
    url = f"sqlite:///{tmp_path / 'log.db'}"
    with open_log(url) as log:
        log.create_topic("orders", 1)
    config = StreamsConfig(
        {
            "application.id": "app",
            "bootstrap.servers": url,
            "penstock.console.users": str(users),
            "schema.registry.url": "mock://console-port",
        }
    )
    service = QueryService(state)
    own = OwnApplication("app", Recorder.of(config, lambda: "RUNNING"), lambda: service)
    console = EmbeddedConsole(own, config)
    server = QueryServer(service, pages=[console.beside()])
    server.start()
    try:
        assert console.served_at(server.url, lambda: server.is_stopping) == f"{server.url}/ui/"
        statuses = {}
        for name in ("vera", "anna"):
            bearer = {"authorization": f"Bearer {name[0] * 32}", "origin": server.url, "x-penstock": "1"}
            with httpx.Client(base_url=server.url, headers=bearer, trust_env=False, timeout=120) as http:
                assert "The registry has no schemas." in http.get("/ui/schemas").text
                sent = http.post("/ui/api/v1/topics/orders/messages", json={"value": "x"})
                statuses[name] = sent.status_code
        assert statuses == {"vera": 403, "anna": 200}
    finally:
        server.close()
        console.close()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "cannot be read"),
        ({"penstock.console.token": TOKEN}, "penstock.console.users excludes penstock.console.token"),
        ({"penstock.console.allow.writes": "true"}, "penstock.console.users excludes penstock.console.allow.writes"),
    ],
)
def test_users_that_cannot_be_and_settings_beside_them_are_refused_before_anything_is_opened(tmp_path, settings, why):
    users = tmp_path / "users"
    if settings:
        users.write_text(f"vera:viewer:{'v' * 32}\n")
    own = OwnApplication("app", None, lambda: None)
    url = f"sqlite:///{tmp_path / 'log.db'}"
    given = {"application.id": "app", "bootstrap.servers": url, "penstock.console.users": str(users), **settings}
    with pytest.raises(ConfigError, match=why):
        EmbeddedConsole(own, StreamsConfig(given))
    assert not (tmp_path / "log.db").exists()


def test_a_registry_that_the_console_cannot_use_does_not_keep_the_application_from_starting(tmp_path):
    given = {"application.id": "app", "bootstrap.servers": f"sqlite:///{tmp_path / 'log.db'}",
             "penstock.console.token": TOKEN, "schema.registry.url": "http://127.0.0.1:9",
             "schema.registry.ssl.ca.location": str(tmp_path / "nowhere.pem")}  # fmt: skip
    config = StreamsConfig(given)
    console = EmbeddedConsole(OwnApplication("app", Recorder.of(config, lambda: "RUNNING"), lambda: None), config)
    assert console._site.schemas is None
    console.close()
