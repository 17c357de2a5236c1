"""The notebook of the examples runs, and its cells show pictures and tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[3] / "examples" / "notebook.ipynb"
ENDS_IN_S = 120


@pytest.mark.filterwarnings("ignore")  # Jupyter's own
def test_the_notebook_runs_and_shows_itself(tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: make setup")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: make setup")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: make setup")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=ENDS_IN_S, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    shown = [
        output["data"].get("text/html", "")
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if "data" in output
    ]
    picture, counts, store, windows, app = shown
    assert picture.startswith("<svg")
    assert "KSTREAM-FLATMAPVALUES" in picture
    assert "<caption>word-counts: 5 records to read</caption>" in counts
    assert "<td>the</td>" in counts
    assert "<td>the</td>" in store
    assert "2026-11-21T03:00:00Z/2026-11-21T03:01:00Z" in windows
    assert "<td>CREATED</td>" in app


def test_it_is_kept_without_outputs():
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
