"""Hostile requests against each HTTP server of the tree, over raw sockets: hosts, targets, redirects."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlencode, urljoin, urlsplit

import pytest
from starlette.responses import PlainTextResponse

from penstock.connect.rest import WorkerServer
from penstock.connect.worker_settings import WorkerConfig
from penstock.console.applications import Applications
from penstock.console.web.application import make_console
from penstock.console.web.server import ConsoleAddress, ConsoleServer
from penstock.console.web.site import Site
from penstock.console.web.visitors import OneToken
from penstock.log.open import open_log
from penstock.serde.registry import Registry
from penstock.serving import CHANGING, READING, AccessRules, Beside, HttpServer, Mounted, TokenDoor, listen
from penstock.sql.server import SqlService
from penstock.sql.server import server as sql_server
from penstock.sql.session import SqlSession
from penstock.tools.registry_server import server as registry_server

TOKEN = "t" * 43
SERVERS = ("console", "port of an application", "registry", "SQL", "Connect")
HOSTS = (
    "127.0.0.1:{port}.evil.example", "127.0.0.1.evil.example:{port}", "127.0.0.1:{port}@evil.example", "evil.example",
    "evil.example:{port}", "127.0.0.1:{port}/", "127.0.0.1:{port}#", "127.0.0.1: {port}", "[::1", "[::1]evil.example",
    "::1", "127.0.0.1:", "127.0.0.1:x", "localhost\\evil.example", "a,127.0.0.1:{port}",
)  # fmt: skip
FIT_HOSTS = ("127.0.0.1:{port}", "127.0.0.1", "localhost:{port}", "LOCALHOST", "[::1]:{port}")
TARGETS = (
    "/%5Cevil.example/", "/%5C%5Cevil.example/", "//evil.example/", "///evil.example/", "/%2F%2Fevil.example/",
    "/%2Fevil.example/", "/%09/evil.example/", "/%0A/evil.example/", "/%0D%0A//evil.example/", "/%20//evil.example/",
    "/\\evil.example/", "/\\/evil.example/", "/https://evil.example/", "/%00//evil.example", "/;//evil.example",
    "/..//evil.example/", "/%2e%2e//evil.example/", "/@evil.example/", "/x%0d%0aSet-Cookie:%20a=b", "/%E2%80%AE/x",
    "/%ff%fe/x", "/ui/%5Cevil.example/", "/ui//evil.example/", "/ui", "http://evil.example/", "https:evil.example", "*",
)  # fmt: skip


@contextmanager
def console(root: Path) -> Iterator[int]:
    with open_log(f"sqlite:///{root / 'log.db'}") as log:
        server = ConsoleServer(Site(Applications(log), log), ConsoleAddress(port=0, token=TOKEN))
        server.start()
        yield server.port
        server.close()


@contextmanager
def port_of_an_application(root: Path) -> Iterator[int]:
    """The console below ``/ui``, beside an application without a token: how the query server mounts it."""
    with open_log(f"sqlite:///{root / 'log.db'}") as log:
        door = TokenDoor(make_console(Site(Applications(log), log, root="/ui")), OneToken(TOKEN))
        listener = listen("127.0.0.1", 0, "query server")
        both = Mounted(PlainTextResponse("open"), Beside("/ui", door))
        server = HttpServer(both, listener, access=AccessRules(methods=READING | CHANGING))
        server.start()
        yield server.port
        server.close()


@contextmanager
def registry(root: Path) -> Iterator[int]:
    del root
    server = registry_server(Registry(), port=0)
    server.start()
    yield server.port
    server.close()


@contextmanager
def sql(root: Path) -> Iterator[int]:
    with SqlSession({"bootstrap.servers": f"memory://{root.name}"}, queries="wait") as session:
        service = SqlService(session)
        server = sql_server(service, port=0)
        server.start()
        yield server.port
        service.close()
        server.close()


@contextmanager
def connect(root: Path) -> Iterator[int]:
    names = ("config", "offset", "status")
    settings = {
        "bootstrap.servers": f"sqlite:///{root / 'log.db'}", "group.id": "w", "listeners": "http://127.0.0.1:0",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        **{f"{name}.storage.topic": name for name in names},
        **{f"{name}.storage.replication.factor": "1" for name in names},
    }  # fmt: skip
    server = WorkerServer(WorkerConfig.of(settings, "distributed"))
    server.start()
    yield server.port
    server.stop()


STARTS = dict(zip(SERVERS, (console, port_of_an_application, registry, sql, connect), strict=True))


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    with ExitStack() as running:
        yield {name: running.enter_context(start(tmp_path_factory.mktemp("server"))) for name, start in STARTS.items()}


def ask(port: int, target: str, host: str | None = None, *more: str) -> tuple[int, dict[str, str], str]:
    """Send a request as it stands; return status, headers and body of the answer."""
    lines = [f"GET {target} HTTP/1.1", f"Host: {host or f'127.0.0.1:{port}'}", "Connection: close", *more, "", ""]
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall("\r\n".join(lines).encode("latin-1"))
        found = b""
        while part := connection.recv(65536):
            found += part
    head, _, body = found.decode("latin-1").partition("\r\n\r\n")
    status, *rest = head.split("\r\n")
    assert status.startswith("HTTP/1.1 "), "the connection was ended without an answer"
    headers = [each.partition(": ") for each in rest]
    return int(status.split()[1]), {name.lower(): value for name, _, value in headers}, body


def browsed(base: str, location: str) -> str:
    """Return the host that a browser goes to (WHATWG): a backslash is a slash, tabs and line ends are left out."""
    text = "".join(each for each in location.replace("\\", "/") if each not in "\t\r\n").strip("\x00 ")
    return str(urlsplit(urljoin(base, text)).netloc)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("name", SERVERS)
def test_a_host_is_compared_whole(ports: dict[str, int], name: str, host: str) -> None:
    port = ports[name]
    assert ask(port, "/", host.format(port=port))[0] in (400, 421)


@pytest.mark.parametrize("host", FIT_HOSTS)
@pytest.mark.parametrize("name", SERVERS)
def test_the_names_of_this_machine_are_known(ports: dict[str, int], name: str, host: str) -> None:
    port = ports[name]
    assert ask(port, "/", host.format(port=port))[0] not in (400, 421)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SERVERS)
def test_no_answer_leads_to_another_host_and_none_is_an_accident(
    ports: dict[str, int], name: str, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    port = ports[name]
    for query in ("", f"?token={TOKEN}", f"?a=%0d%0aX:%20y&token={TOKEN}"):
        for kind in ("*/*", "text/html"):
            with caplog.at_level(logging.WARNING):
                status, headers, body = ask(port, f"{target}{query}", None, f"Accept: {kind}")
            assert status < 500
            assert "evil" not in browsed(f"http://127.0.0.1:{port}/", headers.get("location", "/"))
            assert headers.get("x") is None
            assert "a=b" not in headers.get("set-cookie", "")
            assert TOKEN not in body
            assert headers.get("location") in (None, f"/ui/{query}") or TOKEN not in headers["location"]
    assert [each for each in caplog.records if each.exc_info] == []


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://[", "https://127.0.0.1:{port}.evil.example"])
def test_an_origin_is_compared_whole(ports: dict[str, int], origin: str) -> None:
    port = ports["registry"]
    body = b'{"schema": "\\"int\\""}'
    lines = (
        "POST /subjects/a/versions HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Origin: {origin.format(port=port)}",
        "Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close", "", "",
    )  # fmt: skip
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall("\r\n".join(lines).encode() + body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 403")


def test_a_header_of_an_answer_cannot_hold_a_control_character() -> None:
    async def hostile(scope: object, receive: object, send: object) -> None:
        del scope, receive
        headers = [(b"content-disposition", b'attachment; filename="a\r\nSet-Cookie: a=b"'), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": b""})  # type: ignore[operator]

    server = HttpServer(hostile, listen("127.0.0.1", 0, "server"), access=AccessRules())
    server.start()
    status, headers, _ = ask(server.port, "/")
    server.close()
    assert status == 200
    assert "set-cookie" not in headers


PAGES = ("/topics?app=x&internal=no", "/")


@pytest.mark.parametrize("path", PAGES)
def test_a_browser_without_the_cookie_is_asked_for_the_token_and_comes_where_it_wanted(
    ports: dict[str, int], path: str
) -> None:
    port = ports["console"]
    status, headers, page = ask(port, path, None, "Accept: text/html,*/*;q=0.8", "Sec-Fetch-Dest: document")
    assert (status, headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert f'action="{path.partition("?")[0]}"' in page
    for name, _, value in (each.partition("=") for each in path.partition("?")[2].split("&") if each):
        assert f'name="{name}" value="{value}"' in page
    assert "not a token" not in page
    assert "not a token" in ask(port, "/?token=wrong", None, "Accept: text/html")[2]
    joint = "&" if "?" in path else "?"
    status, headers, _ = ask(port, f"{path}{joint}token={TOKEN}", None, "Accept: text/html")
    assert (status, headers["location"]) == (303, path)
    cookie = headers["set-cookie"]
    assert "SameSite=Lax" in cookie, "a link from a chat comes from another site"
    sent = ("Accept: text/html", f"Cookie: {cookie.partition(';')[0]}", "Sec-Fetch-Site: cross-site")
    assert ask(port, "/", None, *sent)[0] == 200


def test_a_program_without_the_token_gets_json(ports: dict[str, int]) -> None:
    for path in ("/", "/api/v1/apps"):
        status, headers, _ = ask(ports["console"], path, None, "Accept: */*")
        assert (status, headers["content-type"]) == (401, "application/json")
    style = ask(ports["console"], "/static/console.css", None, "Accept: text/css", "Sec-Fetch-Dest: style")
    assert style[1]["content-type"] == "application/json"


def test_the_page_for_the_token_escapes_what_the_address_holds(ports: dict[str, int]) -> None:
    page = ask(ports["console"], "/%22%3E%3Cscript%3E?%22%3E%3Cb%3E=%22%3E%3Ci%3E", None, "Accept: text/html")[2]
    assert [part for part in ("<script", "<b>", "<i>") if part in page] == []


def test_a_token_of_any_characters_works() -> None:
    token = 'a b;c=\u00e9\u20ac"' + "x" * 20
    server = HttpServer(
        TokenDoor(PlainTextResponse("in"), OneToken(token)), listen("127.0.0.1", 0, "s"), access=AccessRules()
    )
    server.start()
    _, headers, _ = ask(server.port, f"/?{urlencode({'token': token})}")
    status = ask(server.port, "/", None, f"Cookie: {headers['set-cookie'].partition(';')[0]}")[0]
    server.close()
    assert status == 200
