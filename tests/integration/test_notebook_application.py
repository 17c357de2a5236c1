"""An application that starts and stops in a notebook: its cells show tables, and nothing that Spark leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest

ENDS_IN_S = 240
CELLS = (
    """
    from penstock import KafkaStreams, Materialized, StreamsBuilder
    from penstock.log import Producer
    url = "sqlite:///words.db"
    builder = StreamsBuilder()
    by_word = builder.stream("lines").flat_map_values(str.split).group_by(lambda _, word: word)
    by_word.count(Materialized("counts")).to_stream().to("word-counts")
    config = {
        "application.id": "words", "bootstrap.servers": url, "penstock.source.partitions": 1, "commit.interval.ms": 50,
        "default.key.serde": "string", "default.value.serde": "string", "spark.master": "local[2]",
    }
    hasty = KafkaStreams(builder.build(), config)
    hasty.start()
    hasty.close()  # while workers start
    """,
    """
    app = KafkaStreams(builder.build(), config)
    app.start()
    """,
    """
    import time
    with Producer(url) as producer:
        producer.send("lines", b"the pen the <ink>")
    until = time.monotonic() + 100
    while not (app.figures().records_in and app.state.name == "RUNNING") and time.monotonic() < until:
        time.sleep(0.1)
    app
    """,
    "app.store('counts')",
    """
    with Producer(url) as producer:
        for number in range(1000):
            producer.send("lines", b"more")
    app.close()  # in the middle of a batch, as a rule
    """,
    "app.figures()",
    "time.sleep(2)",  # what comes late
)


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")  # Jupyter's own
def test_a_closed_application_leaves_no_traces_in_its_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: make setup")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: make setup")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: make setup")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # with it, kernels do not show what processes of theirs print
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(_dedented(cell)) for cell in CELLS])
    client = nbclient.NotebookClient(notebook, timeout=ENDS_IN_S, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    outputs = [list(cell.outputs) for cell in notebook.cells]
    printed = [output["text"] for cell in outputs for output in cell if output["output_type"] == "stream"]
    assert printed == []
    hasty, _, running, store, closed, ended, _ = ([o["data"] for o in cell if "data" in o] for cell in outputs)
    assert hasty[0]["text/plain"] == "True"
    assert "<td>RUNNING</td>" in running[0]["text/html"]
    assert "<td>&lt;ink&gt;</td><td>1</td>" in store[0]["text/html"]
    assert "<td>the</td><td>2</td>" in store[0]["text/html"]
    assert closed[0]["text/plain"] == "True"
    assert "<td>NOT_RUNNING</td>" in ended[0]["text/html"]


def _dedented(cell: str) -> str:
    from textwrap import dedent

    return dedent(cell).strip()
