"""Tables that notebooks show."""

from __future__ import annotations

from penstock import KafkaStreams, Materialized, StreamsBuilder, TopologyTestDriver
from penstock.base.terminal.html import table_html
from penstock.engines.application_figures import RunFigures
from penstock.engines.spark.progress import BatchProgress
from penstock.query import KeyQuery, RangeQuery, StateQueryRequest
from penstock.state.views.keyvalue import entries_html


def _topology():
    builder = StreamsBuilder()
    words = builder.stream("lines").group_by(lambda _, value: value)
    words.count(Materialized("counts")).to_stream().to("out")
    return builder.build()


def test_many_rows_are_cut_and_text_is_escaped():
    html = table_html("<t>", ["n"], ([f"<{number}>"] for number in range(1000)))
    assert html.count("<tr>") == 22
    assert "&lt;19&gt;" in html
    assert "&lt;20&gt;" not in html
    assert "and more" in html
    assert "<caption>&lt;t&gt;</caption>" in html
    assert len(table_html("t", ["n"], [["x" * 10_000]])) < 400


def test_a_topology_is_a_picture_and_records_of_a_test_stay_to_be_read():
    topology = _topology()
    assert topology._repr_mimebundle_()["text/html"].startswith("<svg")
    config = {"application.id": "a", "default.key.serde": "string", "default.value.serde": "string"}
    with TopologyTestDriver(topology, config) as driver:
        driver.input_topic("lines").pipe("<b>", timestamp=0)
        out = driver.output_topic("out", value_serde="long")
        for _ in range(2):
            assert "<td>1970-01-01T00:00:00.000Z</td><td>&lt;b&gt;</td><td>1</td>" in out._repr_html_()
        assert out.read_key_value() == ("<b>", 1)
        assert "<td>string</td>" in driver.input_topic("lines")._repr_html_()
        assert "value=1, timestamp=0" in driver.store("counts")._repr_html_()
    assert "empty" in entries_html("s", [])


def test_an_application_shows_its_state():
    app = KafkaStreams(_topology(), {"application.id": "a", "bootstrap.servers": "sqlite:///a.db"})
    assert "<caption>a</caption>" in app._repr_html_()
    assert "<tr><th>state</th><td>CREATED</td></tr>" in app._repr_html_()


def test_figures_and_batches_are_tables():
    assert "<td>starting &lt;Spark&gt;</td>" in RunFigures("a", "REBALANCING", doing="starting <Spark>")._repr_html_()
    figures = RunFigures("<a>", "RUNNING", records_in=1200, lag=3)._repr_html_()
    assert "<caption>&lt;a&gt;</caption>" in figures
    assert "<tr><th>records in</th><td>1,200</td></tr>" in figures
    tasks = ({"task": "0_1", "records_read": 7, "records_written": 6}, {"task": "<0>"})
    batch = BatchProgress(3, 7, 6, 0, -1, {"in-0": 2, "in-1": 5}, {"s": 9}, 10, tasks, {"<in>-0": 4})._repr_html_()
    assert "<caption>batch 3</caption>" in batch
    assert "<tr><th>lag</th><td>7</td></tr>" in batch
    assert "<tr><td>0_1</td><td>7</td><td>6</td><td>None</td></tr>" in batch
    assert "&lt;in&gt;-0: 4" in batch
    assert "&lt;0&gt;" in batch


def test_answers_of_queries_are_tables():
    topology = _topology()
    config = {"application.id": "a", "default.key.serde": "string", "default.value.serde": "string"}
    with TopologyTestDriver(topology, config) as driver:
        for number in range(30):
            driver.input_topic("lines").pipe(f"<{number:02}>", timestamp=0)
        asked = StateQueryRequest.in_store("counts")
        one = driver.query(asked.with_query(KeyQuery.with_key("<07>")))
        assert "<tr><th>result</th><td>1</td></tr>" in one.only_partition_result._repr_html_()
        assert one._repr_html_().endswith("<tr><td>0</td><td>0</td><td>1</td></tr></tbody></table>")
        many = driver.query(asked.with_query(RangeQuery.with_no_bounds()))
        html = many.only_partition_result._repr_html_()
        assert "<td>&lt;19&gt;</td><td>1</td>" in html
        assert "&lt;20&gt;" not in html
        assert "30 entries" in many._repr_html_()
        failed = driver.query(asked.with_query(KeyQuery.with_key("<07>")).with_partitions([9]))
        assert "DOES_NOT_EXIST: store &#x27;counts&#x27; has no partition 9" in failed._repr_html_()
        assert "<td>DOES_NOT_EXIST</td>" in failed.partition_results[9]._repr_html_()
