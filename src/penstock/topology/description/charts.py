"""A description as a chart: text for Mermaid and for Graphviz, and the boxes and arrows that all charts share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.topology.description.nodes import DescribedSubTopology
from penstock.topology.nodes import ProcessorNode, SinkNode, SourceNode

__all__ = ["Box", "Chart", "chart_of", "dot", "mermaid"]

Kind = Literal["topic", "node", "store"]


@dataclass(frozen=True, slots=True)
class Box:
    """A topic, a node or a store; ``group``: the sub-topology that it belongs to, None for topics."""

    kind: Kind
    name: str
    group: int | None = None

    @property
    def id(self) -> str:
        """A unique plain word: letters, digits, underscores."""
        return f"{self.kind}_" + "".join(c if c.isascii() and c.isalnum() else f"_{ord(c):x}_" for c in self.name)


@dataclass(frozen=True, slots=True)
class Chart:
    """The boxes and arrows of a topology.

    Attributes:
        groups: The titles of sub-topologies, by number.
        boxes: In the order of the description, topics last.
        arrows: The way of records.
        touches: A node and a store that it uses.
    """

    groups: dict[int, str]
    boxes: tuple[Box, ...]
    arrows: tuple[tuple[Box, Box], ...]
    touches: tuple[tuple[Box, Box], ...]

    def in_group(self, group: int | None) -> Iterator[Box]:
        """Yield the boxes of a sub-topology, or of none."""
        return (box for box in self.boxes if box.group == group)


def chart_of(subtopologies: Sequence[DescribedSubTopology]) -> Chart:
    """Return the boxes and arrows of described sub-topologies."""
    groups: dict[int, str] = {}
    boxes: dict[Box, None] = {}
    topics: dict[Box, None] = {}
    arrows: dict[tuple[Box, Box], None] = {}
    touches: dict[tuple[Box, Box], None] = {}
    for sub in subtopologies:
        groups[sub.id] = f"Sub-topology: {sub.id}{' (global store)' if sub.is_global else ''}"
        for described in sub.nodes:
            box = Box("node", described.node.name, sub.id)
            boxes[box] = None
            arrows |= dict.fromkeys((box, Box("node", child, sub.id)) for child in described.successors)
            match described.node:
                case SourceNode(topics=names, pattern=pattern):
                    sources = [Box("topic", name) for name in names or (str(pattern),)]
                    topics |= dict.fromkeys(sources)
                    arrows |= dict.fromkeys((source, box) for source in sources)
                case ProcessorNode(stores=stores):
                    kept = [Box("store", store, sub.id) for store in stores]
                    boxes |= dict.fromkeys(kept)
                    touches |= dict.fromkeys((box, store) for store in kept)
                case SinkNode(topic=topic, topic_fn=topic_fn):
                    target = Box("topic", topic if topic is not None else topic_fn.name if topic_fn else "")
                    topics[target] = None
                    arrows[box, target] = None
    return Chart(groups, (*boxes, *topics), tuple(arrows), tuple(touches))


def mermaid(chart: Chart) -> str:
    """Return the chart as a flow chart of Mermaid."""
    shapes = {"topic": ('(["', '"])'), "node": ('["', '"]'), "store": ('[("', '")]')}

    def shown(box: Box) -> str:
        before, after = shapes[box.kind]
        return f"{box.id}{before}{_for_mermaid(box.name)}{after}"

    lines = ["flowchart TD"]
    for number, title in chart.groups.items():
        boxes = [f"    {shown(box)}" for box in chart.in_group(number)]
        lines += [f'  subgraph sub_{number}["{title}"]', *boxes, "  end"]
    lines += [f"  {shown(box)}" for box in chart.in_group(None)]
    lines += [f"  {first.id} --> {second.id}" for first, second in chart.arrows]
    lines += [f"  {first.id} -.- {second.id}" for first, second in chart.touches]
    return "\n".join(lines) + "\n"


def dot(chart: Chart) -> str:
    """Return the chart in the language of Graphviz."""
    shapes = {"topic": "shape=box, style=rounded", "node": "shape=box", "store": "shape=cylinder"}

    def shown(box: Box) -> str:
        return f"{box.id} [label={_quoted(box.name)}, {shapes[box.kind]}];"

    lines = ["digraph topology {"]
    for number, title in chart.groups.items():
        boxes = [f"    {shown(box)}" for box in chart.in_group(number)]
        lines += [f"  subgraph cluster_{number} {{", f"    label={_quoted(title)};", *boxes, "  }"]
    lines += [f"  {shown(box)}" for box in chart.in_group(None)]
    lines += [f"  {first.id} -> {second.id};" for first, second in chart.arrows]
    lines += [f"  {first.id} -> {second.id} [style=dashed, dir=none];" for first, second in chart.touches]
    return "\n".join([*lines, "}"]) + "\n"


def _for_mermaid(text: str) -> str:
    """Escape characters that would end a label or begin markup, in Mermaid's own way."""
    return "".join(f"#{ord(c)};" if c in '"#<>&`\\' else c for c in text)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
