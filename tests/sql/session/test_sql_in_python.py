"""SQL from Python: SELECT in a topology, results as frames, the extension of notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock import Consumed, Grouped, Materialized, Produced, StreamsBuilder, Suppressed, TopologyTestDriver
from penstock.errors import ConfigError, SqlError
from penstock.serde.windowed import Windowed
from penstock.sql import SqlSession, stream
from penstock.sql.notebook import SqlMagic, load_ipython_extension, unload_ipython_extension
from penstock.sql.results import Rows
from penstock.topology.plan.plan import plan_of
from penstock.topology.plan.plan_json import document_of

CLICKS = "CREATE STREAM clicks (id INT KEY, page STRING) WITH (kafka_topic='clicks', format='JSON', partitions=1);"


def piped(builder: StreamsBuilder, *pages: str) -> list[tuple[Any, int]]:
    with TopologyTestDriver(builder.build(), {"statestore.cache.max.bytes": 0}) as driver:
        for number, page in enumerate(pages):
            driver.pipe_raw("clicks", b"%d" % number, f'{{"PAGE": "{page}"}}'.encode(), number * 40_000, ())
        found = []
        while (record := driver.read_raw("out")) is not None:
            found.append(((record.value or b"").decode(), record.timestamp))
        return found


def test_a_select_is_a_stream_of_dictionaries() -> None:
    builder = StreamsBuilder()
    made = stream(builder, CLICKS + "SELECT id, UCASE(page) AS p FROM clicks WHERE id > 0;")
    made.map_values(lambda row: f"{row['ID']} {row['P']}").to("out", Produced(value_serde="string"))
    assert piped(builder, "/a", "/b", "/c") == [("1 /B", 40_000), ("2 /C", 80_000)]


def test_a_select_with_groups_is_a_table_with_windowed_keys() -> None:
    builder = StreamsBuilder()
    table = stream(
        builder, CLICKS + "SELECT page, COUNT(*) AS n FROM clicks WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY page;"
    )
    keys: list[Any] = []
    table.to_stream().peek(lambda key, _: keys.append(key)).map_values(lambda row: f"{row['PAGE']} {row['N']}").to(
        "out", Produced(value_serde="string")
    )
    assert [value for value, _ in piped(builder, "/a", "/a", "/a")] == ["/a 1", "/a 2", "/a 1"]
    assert isinstance(keys[0], Windowed)
    assert keys[0].key == "/a"


ORDERS = "CREATE STREAM orders (item STRING KEY, n INT) WITH (kafka_topic='orders', value_format='JSON', partitions=1);"
ITEMS = "CREATE TABLE items (item STRING PRIMARY KEY, price INT) WITH (kafka_topic='items', value_format='JSON');"


def written(builder: StreamsBuilder, records: Sequence[tuple[str, str | None, str]], **settings: Any) -> list[Any]:
    """The keys and values of the topic out, as text, after records of (topic, key, value) in one batch."""
    with TopologyTestDriver(
        builder.build(settings), {"statestore.cache.max.bytes": 0, **settings}, batch_size=len(records)
    ) as driver:
        for time, (topic, key, value) in enumerate(records):
            driver.pipe_raw(topic, None if key is None else key.encode(), value.encode(), time, ())
        driver.flush()
        found = []
        while (record := driver.read_raw("out")) is not None:
            found.append((None if record.key is None else record.key.decode(), (record.value or b"").decode()))
        return found


MANY = [("orders", f"item-{number % 4}", f'{{"N": {number}}}') for number in range(100)]  # read by the column


@pytest.mark.parametrize("records", [MANY[:3], MANY])
def test_a_key_of_one_column_is_its_value(records: list[tuple[str, str | None, str]]) -> None:
    builder = StreamsBuilder()
    orders = stream(builder, ORDERS + "SELECT * FROM orders;")
    orders.map_values(lambda key, row: f"{key!r} {row['N']}").to(
        "out", Produced(key_serde="string", value_serde="string")
    )
    keyless = ("orders", None, '{"N": -1}')
    assert written(builder, [*records, keyless]) == [
        *[(key, f"{key!r} {number}") for number, (_, key, _) in enumerate(records)],
        (None, "None -1"),
    ]


def test_a_key_of_several_columns_is_a_tuple() -> None:
    builder = StreamsBuilder()
    table = stream(builder, ORDERS + "SELECT item, n, COUNT(*) AS c FROM orders GROUP BY item, n;")
    table.to_stream().select_key(lambda key, _: "/".join(map(str, key))).map_values(lambda row: str(row["C"])).to(
        "out", Produced(key_serde="string", value_serde="string")
    )
    assert written(builder, MANY[:1] * 2) == [("item-0/0", "1"), ("item-0/0", "2")]


def test_streams_of_sql_meet_tables_of_python() -> None:
    builder = StreamsBuilder()
    orders = stream(builder, ORDERS + "SELECT * FROM orders;")
    prices = builder.table("items", Consumed(key_serde="string", value_serde="json"))
    orders.join(prices, lambda order, price: str(order["N"] * price)).to("out", Produced(value_serde="string"))
    assert written(builder, [("items", "item-1", "5"), *MANY[:3]]) == [("item-1", "5")]
    assert "repartition" not in str(builder.build().describe())


def test_tables_of_sql_meet_streams_and_tables_of_python() -> None:
    builder = StreamsBuilder()
    items = stream(builder, ITEMS + "SELECT * FROM items;")
    orders = builder.stream("orders", Consumed(key_serde="string", value_serde="string"))
    names = builder.table("names", Consumed(key_serde="string", value_serde="string"))
    orders.join(items, lambda order, item: f"{order} {item['PRICE']}").to("out", Produced(value_serde="string"))
    items.join(names, lambda item, name: f"{name} {item['PRICE']}").to_stream().to(
        "out", Produced(value_serde="string")
    )
    records = [("items", "a", '{"PRICE": 3}'), ("names", "a", "pen"), ("orders", "a", "two"), ("items", "a", "")]
    assert sorted(written(builder, records[:3])) == [("a", "pen 3"), ("a", "two 3")]


def test_keys_that_change_are_repartitioned_as_their_values() -> None:
    """Several groupings share one repartition topic, which must hold plain keys."""
    builder = StreamsBuilder()
    orders = stream(builder, ORDERS + "SELECT * FROM orders PARTITION BY n;")
    for verb in ("count", "reduce"):
        grouped = orders.group_by_key(Grouped(value_serde="json"))
        table = grouped.count() if verb == "count" else grouped.reduce(lambda first, _: first)
        table.to_stream().map_values(lambda key, _, verb=verb: f"{verb} {key!r}").to(
            "out", Produced(value_serde="string")
        )
    found = written(builder, MANY[:2] + MANY[1:2], **{"topology.optimization": "all"})
    zero, one = "\0\0\0\0", "\0\0\0\1"
    assert sorted(found) == [
        (zero, "count 0"), (zero, "reduce 0"), *[(one, "count 1")] * 2, *[(one, "reduce 1")] * 2
    ]  # fmt: skip


def test_closed_windows_of_sql_are_sent_by_suppress() -> None:
    builder = StreamsBuilder()
    table = stream(
        builder,
        ORDERS + "SELECT item, SUM(n) AS total FROM orders "
        "WINDOW TUMBLING (SIZE 10 MILLISECONDS, GRACE PERIOD 0 SECONDS) GROUP BY item;",
    )
    closed = table.map_values(lambda row: str(row["TOTAL"]), Materialized(value_serde="string")).suppress(
        Suppressed.until_window_closes()
    )
    closed.to_stream(lambda key, _: key.key).to("out", Produced(key_serde="string", value_serde="string"))
    found = written(builder, MANY)
    assert found[:4] == [("item-0", "12"), ("item-1", "15"), ("item-2", "8"), ("item-3", "10")]
    assert len(found) == 36


def test_a_table_of_sql_alone_has_no_second_store() -> None:
    builder = StreamsBuilder()
    stream(builder, ORDERS + "SELECT item, COUNT(*) AS n FROM orders GROUP BY item;").to_stream().to("out")
    assert len(builder.build().stores) == 1


def test_stores_behind_sql_have_the_serde_of_their_bytes() -> None:
    """Stores of the time when keys were tuples have it in their plans; another one would be refused."""
    builder = StreamsBuilder()
    orders = stream(builder, ORDERS + "SELECT * FROM orders;")
    orders.group_by_key(Grouped("by-item", value_serde="json")).count(Materialized("counts"))
    topology = builder.build()
    document = document_of(plan_of(topology, "app", {"orders": 1}), topology)
    assert document["stores"]["counts"]["key_serde"] == "kafka(ITEM STRING; unwrapped)"


def test_a_select_reads_the_streams_of_a_session(tmp_path: Path) -> None:
    with SqlSession({"bootstrap.servers": str(tmp_path / "log.db")}, queries="wait") as session:
        session.execute(CLICKS)
        builder = StreamsBuilder()
        stream(builder, "SELECT page FROM clicks;", session).map_values(lambda row: row["PAGE"]).to(
            "out", Produced(value_serde="string")
        )
        assert piped(builder, "/a") == [("/a", 0)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no statement"),
        (CLICKS, "must be a SELECT"),
        (CLICKS + "DROP STREAM clicks; SELECT * FROM clicks;", "CREATE STREAM, TABLE and TYPE alone"),
        (CLICKS + "\nSELECT nothing FROM clicks;", "line 2:8"),
        ("SELCT", "SELECT"),
    ],
)
def test_what_is_no_select_is_refused_with_its_place(text: str, reason: str) -> None:
    with pytest.raises(SqlError) as raised:
        stream(StreamsBuilder(), text)
    assert reason in str(raised.value)


def test_a_table_comes_as_a_frame(tmp_path: Path) -> None:
    with SqlSession({"bootstrap.servers": str(tmp_path / "log.db")}, queries="wait") as session:
        session.execute(CLICKS + "INSERT INTO clicks VALUES (1, '/a'); INSERT INTO clicks VALUES (2, NULL);")
        assert session.table("clicks").to_polars().rows() == [(1, "/a"), (2, None)]
        assert list(session.table("CLICKS").to_pandas()["ID"]) == [1, 2]
        with pytest.raises(SqlError):
            session.table("clicks; DROP STREAM clicks")
        assert "CLICKS" in session.catalog.sources


class Shell:
    """What the extension uses of IPython."""

    def __init__(self) -> None:
        self.magics: dict[str, Any] = {}
        self.variables: dict[str, Any] = {}

    def register_magic_function(self, function: Any, kind: str, name: str) -> None:
        self.magics[name] = function

    def push(self, variables: dict[str, Any]) -> None:
        self.variables.update(variables)


def test_a_cell_of_a_notebook_shows_rows_and_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shell = Shell()
    load_ipython_extension(shell)
    shell.magics["sql_session"]("bootstrap.servers=notes.db")
    shell.magics["sql"]("", CLICKS + "INSERT INTO clicks VALUES (1, '/a');")
    found = shell.magics["sql"]("found", "SELECT * FROM clicks;")
    assert isinstance(found, Rows)
    assert shell.variables["found"] is found
    assert "<table" in found._repr_html_()
    shell.magics["sql"]("DESCRIBE click;")
    unload_ipython_extension(shell)
    shown = capsys.readouterr().out
    assert "Inserted a row into CLICKS" in shown
    assert "Did you mean CLICKS?" in shown
    assert Path("notes.db").exists()


def test_a_setting_of_a_notebook_session_without_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match="name=value"):
        SqlMagic(Shell()).connect("here")


def test_frames_have_the_types_of_their_columns_also_without_rows(tmp_path: Path) -> None:
    with SqlSession({"bootstrap.servers": f"memory://{tmp_path.name}"}, queries="wait") as session:
        session.execute(
            "CREATE STREAM s (id INT KEY, at TIMESTAMP, price DECIMAL(6, 2)) "
            "WITH (kafka_topic='s', value_format='JSON', partitions=1);"
        )
        empty = session.table("s").to_polars()
        session.execute("INSERT INTO s VALUES (1, '2026-01-01T10:00', 1.5); INSERT INTO s (id) VALUES (2);")
        frame = session.table("s").to_polars()
        assert frame.schema == empty.schema
        assert frame.rows() == [(1, datetime(2026, 1, 1, 10, tzinfo=UTC), Decimal("1.50")), (2, None, None)]
        assert session.table("s").to_pandas()["AT"].dt.hour.to_list()[0] == 10
