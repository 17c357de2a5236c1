"""Users of the console: roles of a file, users of a proxy; what a role does not allow is neither shown nor done."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from recorded import APPLICATION, Recorded, recorded

from penstock.cli.servers.console_sources import SqlServerClient
from penstock.cli.servers.ui import ConsoleOptions
from penstock.console.web.server import ConsoleAddress, ConsoleServer
from penstock.console.web.site import Permissions
from penstock.console.web.visitors import BehindProxy, OneToken, Role, Users, Visitor
from penstock.errors import ConfigError

TOKENS = {name: name * 8 for name in ("vera", "omar", "anna")}
FILE = f"""
# The people of the shop
vera:viewer:{TOKENS["vera"]}
omar:operator:{TOKENS["omar"]}
anna:admin:sha256:{hashlib.sha256(TOKENS["anna"].encode()).hexdigest()}
"""
RESET, CREATE = "/api/v1/groups/audit/reset?dry_run=true", "/api/v1/topics"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    with recorded(tmp_path_factory.mktemp("console")) as found:
        yield found


@pytest.fixture(scope="module")
def server(data: Recorded) -> Iterator[ConsoleServer]:
    users = Users.of(FILE.splitlines(), "users")
    data.site.permissions = Permissions(writes=users.may_write)
    running = ConsoleServer(data.site, ConsoleAddress(port=0, admission=users))
    running.start()
    yield running
    running.close()


def client(server: ConsoleServer, token: str, headers: Mapping[str, str] = {}) -> httpx.Client:
    url = f"http://127.0.0.1:{server.port}"
    own = {"authorization": f"Bearer {token}", "origin": url, "x-penstock": "1", **headers}
    return httpx.Client(base_url=url, headers=own, trust_env=False, timeout=120)


def test_the_address_that_is_shown_has_no_token(server: ConsoleServer) -> None:
    assert server.url == f"http://127.0.0.1:{server.port}/"
    with client(server, "nobody" * 8) as nobody:
        assert nobody.get("/").status_code == 401


def test_each_role_sees_and_may_do_what_it_allows(server: ConsoleServer, caplog: pytest.LogCaptureFixture) -> None:
    forms = {"reset": ("/groups/audit", "/reset"), "create": ("/topics", 'data-write="/topics"')}
    caplog.set_level(logging.INFO, "penstock.console.audit")
    seen, done = {}, {}
    for name, token in TOKENS.items():
        with client(server, token) as visitor:
            seen[name] = {form for form, (path, text) in forms.items() if text in visitor.get(path).text}
            answers = {
                "reset": visitor.post(RESET, json={"to": "earliest"}),
                "create": visitor.post(CREATE, json={"topic": f"of-{name}"}),
            }
            done[name] = {what for what, answer in answers.items() if answer.status_code == 200}
            assert {answer.status_code for answer in answers.values()} <= {200, 403}
            assert f"{name}, " in visitor.get("/").text
    assert seen == done == {"vera": set(), "omar": {"reset"}, "anna": {"reset", "create"}}
    said = [record.getMessage() for record in caplog.records]
    assert (
        "omar (operator) at 127.0.0.1: create a topic: refused: omar is operator, and this needs the role admin" in said
    )
    assert "anna (admin) at 127.0.0.1: create a topic: done: topic of-anna" in said


def test_an_open_page_of_one_role_is_not_that_of_another(server: ConsoleServer) -> None:
    def body(name: str) -> str:
        with (
            client(server, TOKENS[name]) as visitor,
            visitor.stream("GET", "/live", params={"of": "/topics"}) as answer,
        ):
            return next(line for line in answer.iter_lines() if line.startswith("data: "))

    with client(server, TOKENS["anna"]) as anna, anna.stream("GET", "/live", params={"of": "/topics"}) as answer:
        assert "Create a topic" in next(line for line in answer.iter_lines() if line.startswith("data: "))
        assert "Create a topic" not in body("vera")


def test_the_log_of_changes_has_refused_statements_and_no_secrets(
    server: ConsoleServer, data: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.console.audit")
    data.site.statements = nowhere = SqlServerClient("http://127.0.0.1:9")
    text = "CREATE SOURCE CONNECTOR c WITH ('db.password' = 'hid''den', \"api.key\"='hidden', 'topic'='orders');"
    for name in ("omar", "anna"):
        with client(server, TOKENS[name]) as visitor:
            assert visitor.post("/api/v1/sql", json={"sql": text}).status_code in (400, 403)
    nowhere.close()
    data.site.statements = None
    refused, failed = [record.getMessage() for record in caplog.records]
    assert refused.startswith("omar (operator) at 127.0.0.1: run SQL: refused: omar is operator")
    assert failed.startswith("anna (admin) at 127.0.0.1: SQL 'CREATE SOURCE CONNECTOR c")
    assert "orders" in failed
    assert "hid" not in refused + failed


def test_sql_and_messages_are_for_administrators(server: ConsoleServer) -> None:
    with client(server, TOKENS["omar"]) as omar:
        for path in ("/api/v1/sql", "/api/v1/topics/orders/messages"):
            answer = omar.post(path, json={"sql": "SHOW STREAMS;", "value": "x"})
            assert answer.status_code == 403
            assert "needs the role admin" in answer.json()["error"]["message"]
        assert omar.post(f"/api/v1/apps/{APPLICATION}/stop", json={}).status_code != 403


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("anna:admin:short", "line 1 of users names no user"),
        (f"anna:boss:{'x' * 32}", "line 1 of users: there is no role 'boss'"),
        (f"anna:{'x' * 32}:{'y' * 32}", "line 1 of users: there is no role between name and token"),
        (f":admin:{'x' * 32}", "line 1 of users names no user"),
        ("anna:admin:sha256:" + "0" * 63, "line 1 of users"),
        ("anna:admin:SHA256:" + "z" * 64, "64 hexadecimal digits"),
        (f"anna:admin:{'x' * 32}\nomar:viewer:{'x' * 32}", "line 2 of users has the token of anna"),
        (f"anna:admin:{'x' * 32}\nanna :viewer:{'y' * 32}", "line 2 of users names anna again"),
        ("# nobody", "names no user"),
    ],
)
def test_a_file_that_says_something_else_is_refused_without_its_tokens(line: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Users.of(line.splitlines(), "users")
    assert message in str(raised.value)
    assert "x" * 20 not in str(raised.value)


def test_a_file_from_windows_names_the_same_users(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"t" * 32).hexdigest().upper()
    (tmp_path / "users").write_bytes(f"\ufeffanna:admin:SHA256:{digest}\r\n".encode())
    assert Users.read(tmp_path / "users")("t" * 32, {}) == Visitor("anna", Role.ADMIN)


def test_a_user_of_a_proxy_has_the_highest_role_of_their_groups() -> None:
    proxy = BehindProxy("t" * 32, "X-User", "X-Groups", {"sre": Role.OPERATOR, "owners": Role.ADMIN})
    assert proxy("t" * 32, {"x-user": "anna", "x-groups": "sre, owners"}) == Visitor("anna", Role.ADMIN)
    assert proxy("t" * 32, {"x-user": "omar", "x-groups": "sre"}) == Visitor("omar", Role.OPERATOR)
    assert proxy("t" * 32, {"x-user": "vera", "x-groups": "shop"}) == Visitor("vera", Role.VIEWER)
    assert proxy("t" * 32, {"x-user": "vera"}) == Visitor("vera", Role.VIEWER)
    assert proxy("t" * 32, {"x-groups": "owners"}) is None, "the proxy names nobody"
    assert proxy("w" * 32, {"x-user": "anna", "x-groups": "owners"}) is None, "not the proxy"
    shown = proxy("t" * 32, {"x-user": "a\u2028b"})
    assert shown is not None
    assert "\u2028" not in shown.name
    unnamed = BehindProxy("t" * 32, "X-User", "X-Groups", {"": Role.ADMIN})
    for groups in ({}, {"x-groups": ""}, {"x-groups": "a, ,b"}):
        assert unnamed("t" * 32, {"x-user": "vera", **groups}) == Visitor("vera", Role.VIEWER)


def test_users_of_a_proxy_over_http(data: Recorded) -> None:
    users = BehindProxy("t" * 32, "X-User", "X-Groups", {"sre": Role.OPERATOR})
    data.site.permissions = Permissions(writes=True)
    server = ConsoleServer(data.site, ConsoleAddress(port=0, admission=users))
    server.start()
    try:
        with client(server, "t" * 32, {"x-user": "omar", "x-groups": "sre"}) as omar:
            assert omar.post(RESET, json={"to": "earliest"}).status_code == 200
            assert omar.post(CREATE, json={"topic": "x"}).status_code == 403
        with client(server, "t" * 32) as nobody:
            assert nobody.get("/").status_code == 401
            named = ("x-user", "vera"), ("x-groups", "shop")
            assert nobody.get("/", headers=named).status_code == 200
            for again in (("x-groups", "sre"), ("x-user", "omar")):  # one from the visitor, one from the proxy
                assert nobody.get("/", headers=(*named, again)).status_code == 401
    finally:
        server.close()


def test_options_that_exclude_each_other_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(FILE)
    token = "t" * 32
    for options, message in (
        (ConsoleOptions(users_file=file, token=token), "--users-file excludes"),
        (ConsoleOptions(users_file=file, allow_writes=True), "--users-file excludes"),
        (ConsoleOptions(user_header="X-User"), "--user-header needs --token"),
        (ConsoleOptions(token=token, group_role=["sre=admin"]), "for users of a proxy"),
    ):
        with pytest.raises(ConfigError, match=message):
            options.address()
    with pytest.raises(ConfigError, match="--user-header excludes --allow-writes"):
        ConsoleOptions(token=token, user_header="X", allow_writes=True).address()
    with pytest.raises(ConfigError, match="--group-role names no group"):
        ConsoleOptions(token=token, user_header="X", groups_header="Y", group_role=["=admin"]).address()
    with pytest.raises(ConfigError, match="no role 'chief'"):
        ConsoleOptions(token=token, user_header="X", groups_header="Y", group_role=["sre=chief"]).address()
    assert ConsoleOptions(users_file=file).permissions().writes
    assert isinstance(ConsoleOptions(users_file=file).address().admission, Users)
    proxy = ConsoleOptions(token=token, user_header="X", groups_header="Y", group_role=["cn=a,ou=b=admin"]).address()
    assert proxy.admission == BehindProxy(token, "X", "Y", {"cn=a,ou=b": Role.ADMIN})


def test_a_file_of_users_is_read_once(tmp_path: Path) -> None:
    """As it may be a pipe of the shell, which is empty afterwards."""
    file = tmp_path / "users"
    file.write_text("ada:admin:" + "a" * 40)
    options = ConsoleOptions(users_file=file)
    assert options.permissions().writes
    file.write_text("")
    assert isinstance(options.address().admission, Users)


def test_one_token_without_names_allows_everything_or_nothing() -> None:
    assert OneToken("t")("t", {}) == Visitor("", Role.VIEWER)
    assert OneToken("t")("u", {}) is None
    assert Permissions(writes=True).everybody.role is Role.ADMIN
