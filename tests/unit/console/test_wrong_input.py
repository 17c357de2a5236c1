"""Pages for wrong input and for a log without applications: words in place of errors and of empty pages."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from recorded import recorded

from penstock.console.applications import Applications
from penstock.console.web.server import ConsoleAddress, ConsoleServer
from penstock.console.web.site import Site
from penstock.log.open import open_log


def served(site: Site) -> Iterator[httpx.Client]:
    server = ConsoleServer(site, ConsoleAddress(port=0, token=None))
    server.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, timeout=120) as http:
        yield http
    server.close()


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with recorded(tmp_path_factory.mktemp("console")) as data:
        yield from served(data.site)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with open_log(f"sqlite:///{tmp_path_factory.mktemp('log') / 'log.db'}") as log:
        yield from served(Site(Applications(log, {"bootstrap.servers": log.url}), log))


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/topics/orders?start=offset&at=abc", 200, "whole number from 0 on"),
        ("/topics/orders?start=time&at=noon", 200, "not a point in time"),
        ("/topics/orders?start=magic", 200, "Use newest, oldest, an offset, or a time"),
        ("/topics/orders?partition=99", 200, "has no partition 99"),
        ("/topics/orders?partition=-1", 200, "the partition is"),
        ("/topics/orders?limit=many", 200, "the limit is"),
        ("/topics/orders?filter=value.", 200, "character 7"),
        ("/topics/orders?value_format=zzz", 200, "there is no serde"),
        ("/topics/orders?cursor=zz", 200, "not one of this console"),
        ("/topics/nothing", 404, "has no topic"),
        ("/topics/orders/0/99999", 404, "out of range"),
        ("/topics/orders/9/0", 404, "has no orders-9"),
        ("/groups/nobody", 404, "no group"),
        ("/batches?batch=x", 200, "the batch is"),
        ("/batches?batch=77777", 200, "tasks of batch 77,777 are not kept"),
        ("/topology?node=none", 200, "has no node none"),
        ("/?app=nobody", 404, "no application is named"),
        ("/stores/nothing", 200, "there is no state"),
        ("/nothing", 404, "has no page"),
    ],
)
def test_wrong_input_is_answered_in_words(http: httpx.Client, path: str, status: int, said: str) -> None:
    answer = http.get(path)
    assert answer.status_code == status
    assert said in answer.text
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("path", ["/", "/topology", "/batches", "/tasks", "/stores", "/stores/x", "/errors"])
def test_a_log_without_applications_says_so_on_each_page(empty: httpx.Client, path: str) -> None:
    page = empty.get(path)
    assert page.status_code == 200
    assert "No application has run on this log yet." in page.text
    assert "NOT_RUNNING" not in page.text


def test_an_empty_log_says_that_there_are_no_topics_groups_and_servers(empty: httpx.Client) -> None:
    assert "The log has no topics." in empty.get("/topics").text
    assert "no group" in empty.get("/groups").text.lower()
    assert "No server of SQL is known." in empty.get("/sql").text
    assert "No Connect worker is known." in empty.get("/connectors").text


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("start=oldest", "oldest"),
        ("at=earliest", "oldest"),
        ("at=latest", "newest"),
        ("at=offset:1", "offset"),
        ("start=offset&at=1", "offset"),
        ("at=time:2026-11-22T12:00:00Z", "time"),
    ],
)
def test_a_page_of_messages_begins_where_its_form_or_an_address_of_the_interface_says(
    http: httpx.Client, address: str, shown: str
) -> None:
    page = http.get(f"/topics/orders?{address}").text
    assert f'<option value="{shown}" selected>' in page
    assert ("New messages come by themselves" in page) == (shown == "newest")
