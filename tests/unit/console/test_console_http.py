"""The console over HTTP, without a browser: tokens, hosts, methods, headers, escapes."""

from __future__ import annotations

import http
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from recorded import APPLICATION, Recorded, recorded

from penstock.console.recorder import HISTORY, NOW, TOPOLOGY, read_facts
from penstock.console.web.server import ConsoleAddress, ConsoleServer
from penstock.console.web.visitors import kept_token

TOKEN = "t" * 43


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    with recorded(tmp_path_factory.mktemp("console")) as found:
        yield found


@pytest.fixture(scope="module")
def server(data: Recorded) -> Iterator[ConsoleServer]:
    running = ConsoleServer(data.site, ConsoleAddress(port=0, token=TOKEN))
    running.start()
    yield running
    running.close()


@pytest.fixture
def client(server: ConsoleServer) -> Iterator[httpx.Client]:
    bearer = {"authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", headers=bearer, trust_env=False) as found:
        yield found


def test_without_the_token_nothing_is_served(client: httpx.Client) -> None:
    for path in ("/", "/live", "/static/console.css", "/nothing"):
        assert client.get(path, headers={"authorization": ""}).status_code == 401
        assert client.get(path, headers={"authorization": "Bearer wrong"}).status_code == 401


def test_the_token_in_an_address_becomes_a_cookie_that_only_this_site_gets(client: httpx.Client) -> None:
    answer = client.get(f"/?app={APPLICATION}&token={TOKEN}", headers={"authorization": ""})
    assert (answer.status_code, answer.headers["location"]) == (303, f"/?app={APPLICATION}")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    sent = cookie.partition(";")[0]
    assert client.get("/", headers={"authorization": "", "cookie": sent}).status_code == 200


def test_the_cookie_travels_encrypted_alone_if_the_request_did(client: httpx.Client) -> None:
    def cookie(**headers: str) -> str:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return client.get(f"/?token={TOKEN}", headers={"authorization": "", **named}).headers["set-cookie"]

    assert "Secure" not in cookie()
    assert "Secure" not in cookie(x_forwarded_proto="http")
    assert "; Secure" in cookie(x_forwarded_proto="https")
    assert "; Secure" in cookie(x_forwarded_proto="https, http")  # the visitor's, then that between two proxies


def test_a_browser_signs_out_and_another_site_cannot_do_it(client: httpx.Client) -> None:
    signed_in = client.get(f"/?token={TOKEN}", headers={"authorization": ""}).headers["set-cookie"].partition(";")[0]
    with_cookie = {"authorization": "", "cookie": signed_in, "accept": "text/html"}
    assert 'href="/sign-out"' in client.get("/", headers=with_cookie).text
    assert "/sign-out" not in client.get("/").text, "a program has nothing that it could forget"
    assert "set-cookie" not in client.get("/sign-out", headers={**with_cookie, "sec-fetch-site": "cross-site"}).headers
    answer = client.get("/sign-out", headers={**with_cookie, "sec-fetch-site": "same-origin"})
    assert answer.status_code == 200
    assert "You are signed out" in answer.text
    forgotten = answer.headers["set-cookie"]
    assert forgotten.startswith(signed_in.partition("=")[0] + "=;")
    assert "Max-Age=0" in forgotten
    assert '"storage"' in answer.headers["clear-site-data"]


def test_an_address_of_another_host_is_refused_and_a_redirect_stays_here(client: httpx.Client) -> None:
    assert client.get("/", headers={"host": "rebound.example"}).status_code == 421
    answer = client.get(f"//evil.example/?token={TOKEN}", headers={"authorization": ""})
    assert answer.status_code == 303
    assert not answer.headers["location"].startswith("//")


@pytest.mark.parametrize("method", [each.value for each in http.HTTPMethod if each.value not in ("GET", "HEAD")])
def test_no_method_that_changes_something_is_served(client: httpx.Client, method: str) -> None:
    assert client.request(method, "/").status_code in (400, 403, 405, 415)


def test_every_page_forbids_inline_scripts_and_frames(client: httpx.Client) -> None:
    for path in ("/", "/nothing", "/static/console.js"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
    page = client.get("/").text
    assert "style=" not in page
    assert "onclick" not in page


def test_texts_of_an_address_and_of_applications_are_escaped(client: httpx.Client) -> None:
    for path in ("/<script>alert(1)</script>", "/?app=<script>alert(1)</script>"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert "<script>alert" not in answer.text


def test_an_open_page_gets_its_newest_state_and_not_what_it_has_seen(client: httpx.Client, data: Recorded) -> None:
    def first(seen: str = "") -> tuple[str, str]:
        with client.stream("GET", "/live", params={"of": "/"}, headers={"last-event-id": seen}) as answer:
            identity = ""
            for line in answer.iter_lines():
                if line.startswith("id: "):
                    identity = line[4:]
                if line.startswith("data: "):
                    return identity, line
        return "", ""

    identity, body = first()
    assert APPLICATION in body
    data.batch()
    again, _ = first(identity)
    assert again not in ("", identity)


def test_the_figures_survive_in_the_checkpoint(tmp_path: Path) -> None:
    with recorded(tmp_path) as data:
        number = data.batch()
    found: dict[str, Any] = read_facts(str(tmp_path / "checkpoint"), NOW) or {}
    assert found["lines"][-1][0] == number
    assert found["state"] == "NOT_RUNNING"
    assert len((read_facts(str(tmp_path / "checkpoint"), HISTORY) or {})["minutes"]) > 100
    assert "KSTREAM-" in str((read_facts(str(tmp_path / "checkpoint"), TOPOLOGY) or {})["boxes"])


def test_a_token_is_kept_for_this_user_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert kept_token() == kept_token()
    (place,) = tmp_path.rglob("console-token")
    assert place.stat().st_mode & 0o077 == 0
    place.chmod(0o644)
    assert kept_token() != place.read_text()
