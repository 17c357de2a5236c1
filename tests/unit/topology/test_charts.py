"""Descriptions as charts: for Mermaid, Graphviz, and as a picture."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET

import pytest

from penstock import Materialized, StreamsBuilder, TimeWindows, Topology
from penstock.base.jars import cache_directory

# Mermaid's own parser, with the document model that it wants: fetched once into the user's cache.
_PACKAGES = ("mermaid@11", "jsdom@26")
_PARSE = """
import { JSDOM } from "jsdom";
const { window } = new JSDOM("");
globalThis.window = window; globalThis.document = window.document;
const { default: mermaid } = await import("mermaid");
let text = "";
for await (const piece of process.stdin) text += piece;
const said = {};
for (const [name, chart] of Object.entries(JSON.parse(text))) {
  try { await mermaid.parse(chart); said[name] = ""; } catch (error) { said[name] = String(error.message ?? error); }
}
console.log(JSON.stringify(said));
"""


def _word_count() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("lines").flat_map_values(str.split)
    words.group_by(lambda _, word: word).count(Materialized("counts")).to_stream().to("out")
    return builder.build()


def _many_sides() -> Topology:
    """Several sub-topologies, a global table, a loop through a topic, and names that are words of the languages."""
    builder = StreamsBuilder()
    users = builder.global_table("users", materialized=Materialized("graph"))
    clicks = builder.stream(["end", "click"])
    clicks.join(users, key=lambda k, v: v, joiner=lambda a, b: a).to("subgraph")
    by_user = clicks.group_by(lambda _, value: value)
    by_user.windowed_by(TimeWindows.of("1 minute")).count(Materialized("style")).to_stream().to("class")
    clicks.filter(lambda value: value == "again").to("end")
    clicks.to(lambda key, value, context: value)
    builder.stream(re.compile('o"r<d>er#s-.*')).foreach(print)
    return builder.build()


TOPOLOGIES = {"word count": _word_count, "many sides": _many_sides}


@pytest.fixture(scope="module")
def parse(tmp_path_factory):
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("there is no node, which Mermaid's own parser needs")
    folder = cache_directory() / "mermaid"
    folder.mkdir(parents=True, exist_ok=True)
    if not all((folder / "node_modules" / name.partition("@")[0]).is_dir() for name in _PACKAGES):
        command = ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(folder), *_PACKAGES]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            pytest.skip(f"npm cannot fetch Mermaid: {done.stderr[-200:]}")
    script = folder / "parse.mjs"
    script.write_text(_PARSE)

    def call(charts: dict[str, str]) -> dict[str, str]:
        asked = json.dumps(charts)
        done = subprocess.run(["node", script], input=asked, capture_output=True, text=True, timeout=120, check=True)
        return json.loads(done.stdout)

    return call


def test_mermaid_reads_the_charts(parse) -> None:
    charts = {name: make().describe().to_mermaid() for name, make in TOPOLOGIES.items()}
    said = parse({**charts, "broken": charts["word count"].replace("\n  end\n", "\n", 1)})
    assert said.pop("broken") != ""
    assert said == dict.fromkeys(charts, "")


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_sub_topology_is_closed_and_every_name_is_there(name: str) -> None:
    topology = TOPOLOGIES[name]()
    description = topology.describe()
    chart = description.to_mermaid()
    assert chart.count("\n  end\n") == chart.count("subgraph sub_") == len(description.subtopologies)
    dot = description.to_dot()
    assert dot.count("{") == dot.count("}") == len(description.subtopologies) + 1
    for node in topology.nodes:
        assert f'"{node}"' in chart
        assert f'label="{node}"' in dot


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_the_picture_has_a_box_for_all_and_none_lies_on_another(name: str) -> None:
    topology = TOPOLOGIES[name]()
    picture = ET.fromstring(topology.describe().to_svg())
    space = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in picture.iter(f"{space}text")]
    assert set(topology.nodes) <= set(texts)
    sides = ("x", "y", "width", "height")
    boxes = [tuple(float(rect.get(side)) for side in sides) for rect in picture.iter(f"{space}rect")]
    assert len(boxes) == len(texts)
    width, height = float(picture.get("width")), float(picture.get("height"))
    for number, (x, y, w, h) in enumerate(boxes):
        assert 0 <= x <= width - w + 1
        assert 0 <= y <= height - h + 1
        for x2, y2, w2, h2 in boxes[:number]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y
