"""Pages that change something, and those of connectors and SQL, in a real browser beside a real worker and server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Consumed, Grouped, Produced, StreamsBuilder, Topology
from penstock.cli.servers.console_sources import ConnectorsOfWorker, SqlServerClient
from penstock.connect.worker_client import ConnectClient
from penstock.console.schemas import Schemas
from penstock.log.base import TopicPartition
from penstock.serde.registry.service import Registry
from penstock.sql.server import SqlService, server
from penstock.sql.session import SqlSession
from penstock.tools.registry_server import server as registry_server
from standalone_worker import standalone_worker

from .conftest import Console, Seen
from .recorded import APPLICATION, recorded

SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
READY = "() => document.documentElement.dataset.ready === 'true'"


@pytest.fixture(scope="module")
def statements(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServerClient]:
    where = tmp_path_factory.mktemp("sql") / "log.db"
    with SqlSession({"bootstrap.servers": str(where)}, queries="wait") as session:
        session.execute(
            "CREATE STREAM clicks (user STRING KEY, ms INT) WITH (kafka_topic='clicks', value_format='JSON', partitions=1);"
        )
        for n in range(30):
            session.execute(f"INSERT INTO clicks (user, ms) VALUES ('u{n % 3}', {n * n});")
        service = SqlService(session)
        running = server(service, port=0)
        running.start()
        client = SqlServerClient(f"http://127.0.0.1:{running.port}")
        yield client
        client.close()
        service.close()
        running.close()


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectClient]:
    folder = tmp_path_factory.mktemp("worker")
    with standalone_worker(folder) as client:
        client.put_config("lines", {
            "name": "lines", "connector.class": SOURCE, "file": str(folder / "lines.txt"), "topic": "lines", "sasl.password": "hidden-one",
        })  # fmt: skip
        yield client


def order(*fields: str) -> str:
    made = [{"name": name, "type": "string", "default": ""} for name in fields]
    return json.dumps({"type": "record", "name": "Order", "fields": made})


@pytest.fixture(scope="module")
def schemas() -> Iterator[Schemas]:
    """A client of a registry of its own, with a subject of three versions."""
    serving = registry_server(Registry(), port=0)
    serving.start()
    made = Schemas({"schema.registry.url": f"http://127.0.0.1:{serving.port}", "schema.registry.timeout": "120"})
    for fields in (("id",), ("id", "item"), ("id", "item", "price")):
        made.register("orders-value", "AVRO", order(*fields))
    yield made
    made.close()
    serving.close()


@pytest.fixture(scope="module")
def writable(
    tmp_path_factory: pytest.TempPathFactory,
    chromium: Any,
    statements: SqlServerClient,
    worker: ConnectClient,
    schemas: Schemas,
) -> Iterator[Console]:
    with recorded(tmp_path_factory.mktemp("console"), writes=True) as data:
        data.site.statements, data.site.connectors = statements, ConnectorsOfWorker(worker)
        data.site.schemas = schemas
        running = Console(data)
        yield running
        running.server.close()


@pytest.fixture
def change(chromium: Any, writable: Console) -> Iterator[Callable[[str], Any]]:
    opened: list[Seen] = []

    def at(path: str, **how: Any) -> Seen:
        opened.append(Seen(chromium, writable.url, **how))
        opened[-1].go(path)
        return opened[-1]

    yield at
    for each in opened:
        assert [problem for problem in each.problems if "status of 4" not in problem] == []
        assert each.foreign == []
        each.context.close()


@pytest.mark.parametrize(
    "path",
    [
        "/connectors?name=lines",
        "/sql",
        "/groups/audit",
        "/topics/orders",
        "/",
        "/topics/orders/facts",
        "/schemas?subject=orders-value&version=2",
    ],
)
def test_pages_with_changes_are_accessible_in_both_schemes_and_fit(change: Callable[..., Any], path: str) -> None:
    seen = change(path)
    seen.page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert seen.axe() == []
    seen.page.emulate_media(color_scheme="dark")
    seen.page.set_viewport_size({"width": 360, "height": 800})
    assert seen.axe() == []
    assert not seen.is_too_wide()
    seen.page.set_viewport_size({"width": 900, "height": 800})
    assert not seen.is_too_wide()
    seen.page.set_viewport_size({"width": 3840, "height": 2160})
    assert not seen.is_too_wide()


def test_a_form_that_is_refused_can_be_filled_in_and_sent_again(change: Callable[..., Any], writable: Console) -> None:
    page = change("/topics").page
    page.locator("summary", has_text="Create a topic").click()
    form = page.locator("form[data-write='/topics']")
    form.locator("button").click()
    page.locator("#confirm button[value=yes]").click()
    page.wait_for_function("() => document.getElementById('create-says').textContent.includes('has no name')")
    form.locator("[name=topic]").fill("sent-again", timeout=5_000)
    form.locator("[name=settings]").fill("retention.ms=60000", timeout=5_000)
    form.locator("button").click()
    page.locator("#confirm button[value=yes]").click()
    page.wait_for_function("() => document.getElementById('create-says').textContent === 'It is created.'")
    assert writable.data.log.topic("sent-again").config["retention.ms"] == "60000"


def test_a_topic_grows_and_is_deleted_when_its_name_is_typed(change: Callable[..., Any], writable: Console) -> None:
    log = writable.data.log
    log.create_topic("short-lived", 1)
    page = change("/topics/short-lived/facts").page
    page.locator("[name=partitions]").fill("3")
    page.locator("[data-says=partitions-says] button").click()
    page.wait_for_function("() => document.querySelector('#confirm .plan')?.textContent.includes('Keys move')")
    page.locator("#confirm button[value=yes]").click()
    page.wait_for_function(
        "() => document.getElementById('partitions-says').textContent === 'The partitions are added.'"
    )
    assert log.partitions("short-lived") == 3
    page.locator("button.danger").click()
    typed, yes = page.locator("#confirm input"), page.locator("#confirm button[value=yes]")
    page.wait_for_selector("#confirm[open] input")
    assert yes.is_disabled()
    typed.fill("short-live")
    assert yes.is_disabled()
    typed.press("Enter")
    assert "short-lived" in {each.name for each in log.topics()}
    typed.fill("short-lived")
    assert change("/topics/orders/facts").axe() == []
    yes.click()
    page.wait_for_url("**/topics")
    assert "short-lived" not in {each.name for each in log.topics()}


def test_a_schema_is_compared_registered_after_a_look_and_deleted(change: Callable[..., Any], schemas: Schemas) -> None:
    page = change("/schemas").page
    page.locator("#subjects a", has_text="orders-value").click()
    page.wait_for_selector("#chosen ins")
    assert any("price" in each for each in page.locator("#chosen ins").all_inner_texts())
    page.locator("#chosen a", has_text="1").first.click()
    page.wait_for_url("**version=1*")
    page.locator("summary", has_text="Register a schema").click()
    form = page.locator("details[data-key=create] form")
    form.locator("[name=subject]").fill("made-here")
    form.locator("[name=schema]").fill(order("id"))
    form.locator("button").click()
    page.wait_for_function("() => document.querySelector('#confirm .plan')?.textContent === 'The subject is new.'")
    page.locator("#confirm button[value=yes]").click()
    page.wait_for_function("() => document.getElementById('create-says').textContent === 'It is registered.'")
    assert schemas.versions("made-here") == [1]
    page = change("/schemas?subject=made-here").page
    page.locator("#chosen summary", has_text="Delete").click()
    page.locator("button", has_text="Delete the subject").click()
    page.locator("#confirm button[value=yes]").click()
    page.wait_for_function("() => document.getElementById('register-says').textContent === 'It is deleted.'")
    assert schemas.versions("made-here") == []


def test_a_reset_is_shown_before_it_is_done_and_can_be_given_up(change: Callable[..., Any], writable: Console) -> None:
    page, log = change("/groups/audit").page, writable.data.log
    page.locator("summary", has_text="Reset offsets").click()
    page.locator("[data-plan] button").click()
    page.wait_for_selector("#confirm[open] td")
    assert "orders-0" in page.locator("#confirm").inner_text()
    page.keyboard.press("Escape")
    page.wait_for_function("() => document.getElementById('reset-says').textContent === 'Nothing was changed.'")
    assert log.committed_offsets("audit")[TopicPartition("orders", 0)] == 60
    page.locator("[data-plan] button").click()
    page.locator("#confirm button[value=yes]").click()
    page.wait_for_function("() => document.getElementById('reset-says').textContent === 'The offsets were moved.'")
    assert log.committed_offsets("audit")[TopicPartition("orders", 0)] == 0
    log.commit_offsets("audit", {TopicPartition("orders", n): 60 for n in range(3)})


def test_a_running_application_is_not_reset_and_the_page_says_why(change: Callable[..., Any]) -> None:
    page = change(f"/groups/{APPLICATION}").page
    page.locator("summary", has_text="Reset offsets").click()
    page.locator("[data-plan] button").click()
    page.locator("#confirm button[value=yes]").click()
    page.wait_for_selector("#reset-says.bad")
    assert page.locator("#reset-says").inner_text()


def test_a_message_is_sent_and_comes_into_the_list(change: Callable[..., Any]) -> None:
    page = change("/topics/empty").page
    page.locator("summary", has_text="Send a message").click()
    page.locator("textarea[name=value]").fill("hello <b>")
    page.locator("[data-says=send-says] button").click()
    page.locator("#confirm button[value=yes]").click()
    page.wait_for_function("() => document.querySelector('#messages')?.textContent.includes('hello <b>')")
    assert page.locator("#send-says").inner_text() == "It was sent."


def test_an_application_is_stopped_after_a_question(change: Callable[..., Any], writable: Console) -> None:
    stopped = threading.Event()
    writable.data.site.applications.get(APPLICATION).stop = stopped.set  # type: ignore[union-attr]
    page = change("/").page
    page.locator("button", has_text="Stop the application").click()
    assert APPLICATION in page.locator("#confirm-title").inner_text()
    assert not stopped.is_set()
    page.locator("#confirm button[value=yes]").click()
    page.wait_for_function("() => document.getElementById('stop-says').textContent.startsWith('It stops')")
    assert stopped.is_set()


def test_a_connector_shows_its_tasks_with_secrets_masked_and_is_restarted(change: Callable[..., Any]) -> None:
    page = change("/connectors").page
    page.locator("#connectors a", has_text="lines").click()
    page.wait_for_selector("#chosen")
    assert "RUNNING" in page.locator("#connectors").inner_text()
    assert "hidden-one" not in page.content()
    page.locator("#chosen form[data-write$='/restart'] button").click()
    page.locator("#confirm button[value=yes]").click()
    page.wait_for_function("() => document.getElementById('restart-says').textContent === 'It restarts.'")


def test_words_of_sql_complete_themselves_and_rows_become_a_chart(change: Callable[..., Any]) -> None:
    page = change("/sql").page
    field = page.locator("#sql")
    field.focus()
    page.keyboard.type("sel")
    page.wait_for_selector("#words li")
    page.keyboard.press("Tab")
    page.keyboard.type(" user, ms FROM cl")
    page.wait_for_function("() => document.querySelector('#words li')?.textContent.startsWith('CLICKS')")
    page.keyboard.press("Enter")
    page.keyboard.type(";")
    page.wait_for_function("() => document.querySelector('#sql')?.value === 'select user, ms FROM CLICKS;'")
    page.keyboard.press("Control+Enter")
    page.wait_for_function("() => document.querySelectorAll('#results tbody tr').length === 30", timeout=90_000)
    page.locator("#results button", has_text="Chart").click()
    page.wait_for_selector("#results canvas")
    page.locator("[data-example='SHOW STREAMS;']").click()
    page.wait_for_function("() => document.querySelector('#results')?.textContent.includes('clicks')")
    field.fill("SHOW STREAMS;\nSELECT FROM clicks;")
    page.locator("#run").click()
    page.wait_for_selector("#results [role=alert] .caret")
    line, caret = page.locator("#results .caret").text_content().splitlines()
    assert (line, caret) == ("SELECT FROM clicks;", f"{' ' * line.index('FROM')}^")
    assert field.evaluate("f => f.value.slice(f.selectionStart)") == "FROM clicks;"
    field.fill("DESCRIBE CONNECTOR c WITH ('db.password'='hidden');")
    page.locator("#run").click()
    page.wait_for_function("() => !document.querySelector('#results .caret')?.textContent.startsWith('SELECT')")
    assert "hidden" not in page.evaluate("localStorage.getItem('penstock-sql')")
    field.fill("typed")
    field.press("Control+ArrowUp")
    assert field.input_value() == "SHOW STREAMS;\nSELECT FROM clicks;"
    field.press("Control+ArrowUp")
    assert field.input_value() == "SHOW STREAMS;"
    for _ in range(2):
        field.press("Control+ArrowDown")
    assert field.input_value() == "typed"


def test_what_a_query_of_sql_runs_is_drawn_and_its_rows_are_sorted(change: Callable[..., Any]) -> None:
    seen = change("/sql")
    page = seen.page
    page.locator("#sql").fill("CREATE TABLE slow AS SELECT user, COUNT(*) AS n FROM clicks WHERE ms > 3 GROUP BY user;")
    page.locator("#run").click()
    page.wait_for_function("() => document.getElementById('sql-state').textContent.startsWith('done')")
    page.locator("#sql").fill("SHOW QUERIES;")
    page.locator("#run").click()
    page.locator("#results button[title='Show what it runs']").first.click()
    page.wait_for_selector("#results .graph svg .box")
    boxes = page.locator("#results .graph .box title").all_text_contents()
    assert {"clicks", "SLOW"} <= set(boxes)
    assert any("AGGREGATE" in each for each in boxes)
    assert page.locator("#results .graph .touch").count() >= 1
    assert seen.axe() == []
    page.set_viewport_size({"width": 360, "height": 800})
    assert not seen.is_too_wide()
    page.locator("#sql").fill("SELECT user, ms FROM clicks LIMIT 5;")
    page.locator("#run").click()
    page.wait_for_selector("#rows-0 td")
    page.locator("#rows-0 th", has_text="MS").click()
    page.wait_for_function("() => document.querySelector('#rows-0 th[aria-sort=descending]')")
    numbers = [int(each) for each in page.locator("#rows-0 td.number").all_inner_texts()]
    assert numbers == sorted(numbers, reverse=True)


def test_sql_that_changes_something_is_refused_where_the_console_only_reads(
    look: Callable[..., Any], console: Console, statements: SqlServerClient, worker: ConnectClient
) -> None:
    site = console.data.site
    site.statements, site.connectors = statements, ConnectorsOfWorker(worker)
    seen = look("/sql")
    seen.page.locator("#sql").fill("DROP STREAM clicks;")
    seen.page.locator("#run").click()
    seen.page.wait_for_selector("#results [role=alert]")
    assert "DROP" in seen.page.locator("#results").inner_text()
    seen.problems[:] = [each for each in seen.problems if "status of 4" not in each]
    for path in ("/connectors?name=lines", "/groups/audit", "/topics/orders", "/"):
        assert look(path).page.locator("[data-write]").count() == 0
    site.statements = site.connectors = None
    assert "SQL" not in look("/").page.locator(".menu").inner_text()


def _branches() -> Topology:
    """Return a topology of 67 nodes in seven sub-topologies."""
    builder = StreamsBuilder()
    orders = builder.stream("access_log", Consumed(key_serde="string", value_serde="json"))
    for n in range(6):
        part = orders.filter(lambda _, order, n=n: order["id"] % 6 == n).map_values(_same_order)
        counts = part.group_by(_city, Grouped(key_serde="string", value_serde="json")).count()
        counts.to_stream().map_values(str).to(f"out-{n}", Produced(key_serde="string", value_serde="string"))
    return builder.build()


def _same_order(order: Any) -> Any:
    return order


def _city(_: Any, order: Any) -> Any:
    return order["city"]


def test_many_nodes_open_folded_from_left_to_right_on_one_screen_and_a_search_centres(
    tmp_path: Path, chromium: Any
) -> None:
    with recorded(tmp_path, shown=_branches()) as data:
        running = Console(data)
        seen = Seen(chromium, running.url, width=1440)
        page = seen.go("/topology")
        page.wait_for_selector(".box.group")
        assert page.locator(".box.group").count() == 7
        figure = page.locator("#graph").evaluate(
            "f => [f.scrollWidth <= f.clientWidth, f.scrollHeight <= f.clientHeight]"
        )
        assert figure == [True, True]
        source, first = (page.locator(each).first.bounding_box() for each in (".box.topic", ".box.group"))
        assert source["x"] < first["x"]
        page.wait_for_function("() => document.querySelector('.box.group .more')?.textContent.includes('/s in')")
        assert "lag" in page.locator(".box.group .more").first.text_content()
        page.locator("#fold").click()
        page.wait_for_selector(".box.node")
        assert {"_same_order", "_city"} <= set(page.locator(".box.node .name").all_text_contents())
        page.locator("#find").fill("out-5")
        page.wait_for_selector(".box.hit")
        middle, frame = page.locator(".box.hit").bounding_box(), page.locator("#graph").bounding_box()
        assert frame["x"] <= middle["x"] <= frame["x"] + frame["width"]
        assert frame["y"] <= middle["y"] <= frame["y"] + frame["height"]
        assert seen.problems == []


_TAKE_AND_GIVE = """async () => {
  const figure = document.getElementById("graph");
  const { boxes, arrows } = JSON.parse(figure.dataset.graph);
  const name = (id) => boxes.find((each) => each.id === id).name;
  const isTopic = (id) => boxes.find((each) => each.id === id).kind === "topic";
  const nodes = {};
  for (const [from, to] of arrows) {
    if (isTopic(from)) nodes[name(to)] = name(from) === "orders" ? [100, 100, 0.1] : [7, 7, 0.1];
    if (isTopic(to)) nodes[name(from)] = name(to) === "few" ? [7, 7, 0.1] : [50, 50, 0.1];
  }
  figure.dataset.live = JSON.stringify({ nodes, stores: {}, lag: {} });
  (await import("/static/topology.js")).update();
  return Object.fromEntries([...figure.querySelectorAll(".rate")].map((each) => [
    isTopic(boxes.find((box) => box.name === each.dataset.of)?.id ?? boxes[0].id) ? each.dataset.of : each.dataset.to,
    each.textContent]));
}"""


def test_arrows_of_a_folded_sub_topology_have_the_rate_of_their_own_topic(tmp_path: Path, chromium: Any) -> None:
    builder = StreamsBuilder()
    both = builder.stream("orders").merge(builder.stream("access_log"))
    both.to("many")
    both.filter(lambda key, _: key is None).to("few")
    with recorded(tmp_path, shown=builder.build()) as data:
        running = Console(data)
        page = Seen(chromium, running.url, width=1440).go("/topology")
        page.wait_for_selector(".box.node")
        page.locator("#freeze").click()  # the figures below are not the server's
        page.locator("#fold").click()
        page.wait_for_selector(".box.group")
        rates = {"orders": "100 /s", "access_log": "7 /s", "many": "50 /s", "few": "7 /s"}
        assert page.evaluate(_TAKE_AND_GIVE) == rates
        assert "107 /s in, 57 /s out" in (page.locator(".box.group .more").text_content() or "")


def test_a_topology_of_500_nodes_opens_folded_and_stays_usable(tmp_path: Path, chromium: Any) -> None:
    with recorded(tmp_path, shown=_large()) as data:
        running = Console(data)
        seen = Seen(chromium, running.url)
        page = seen.go("/topology")
        page.wait_for_selector(".box.group", timeout=20_000)
        assert page.locator(".box.group").count() == 10
        assert page.locator(".box.node").count() == 0
        page.locator(".box.group").first.focus()
        page.keyboard.press("Enter")
        page.wait_for_selector(".box.node", timeout=20_000)
        assert page.locator(".box.group").count() == 9
        page.locator("#fold").click()
        page.wait_for_function("() => document.querySelectorAll('.box.group').length === 10")
        page.locator("#fold").click()
        page.wait_for_function("() => document.querySelectorAll('.box.node').length >= 500", timeout=60_000)
        page.evaluate("document.querySelector('svg.topology').dataset.mark = '1'")
        number = data.batch()
        page.wait_for_function("n => document.querySelector('.facts b')?.textContent === n", arg=f"{number:,}")
        assert page.locator("svg.topology[data-mark]").count() == 1  # figures change, the layout does not
        taken = page.evaluate(
            "() => { const t = performance.now(); return new Promise(r => requestAnimationFrame(() => r(performance.now() - t))); }"
        )
        assert taken < 1000
        page.locator("#find").fill("0000000017")
        assert page.locator("#nodes tbody tr:visible").count() == 1
        page.reload()
        page.wait_for_selector(".box.group")
        assert seen.problems == []
        seen.context.close()
        running.server.close()


def _large() -> Any:
    """Ten sub-topologies of about 50 nodes."""

    builder = StreamsBuilder()
    for n in range(10):
        stream = builder.stream(f"in-{n}")
        for _ in range(49):
            stream = stream.filter(lambda _, value: value is not None)
        stream.to(f"out-{n}")
    return builder.build()
