"""A topology as text, JSON, chart and picture."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal, Protocol

from penstock.base.java_text.hashing import hash_order
from penstock.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode, parents_of

__all__ = ["Box", "Chart", "TopologyDescription", "TreeOrder", "chart_of", "describe", "graph_in_text", "svg"]


@dataclass(frozen=True, slots=True)
class DescribedNode:
    """One node with its neighbours, in Kafka's order."""

    node: Node
    successors: tuple[str, ...]
    predecessors: tuple[str, ...]

    def __str__(self) -> str:
        after = ", ".join(self.successors) or "none"
        before = ", ".join(self.predecessors) or "none"
        match self.node:
            case SourceNode(name=name, pattern=pattern, topics=topics):
                shown = pattern if pattern is not None else f"[{', '.join(hash_order(topics))}]"
                return f"Source: {name} (topics: {shown})\n      --> {after}"
            case ProcessorNode(name=name, stores=stores):
                shown = ", ".join(hash_order(stores))
                return f"Processor: {name} (stores: [{shown}])\n      --> {after}\n      <-- {before}"
            case SinkNode(name=name, topic=topic, topic_fn=topic_fn):
                to = f"topic: {topic}" if topic_fn is None else f"extractor class: {topic_fn.name}"
                return f"Sink: {name} ({to})\n      <-- {before}"


@dataclass(frozen=True, slots=True)
class DescribedSubTopology:
    """The nodes of one sub-topology, largest subtree first."""

    id: int
    nodes: tuple[DescribedNode, ...]
    is_global: bool

    def __str__(self) -> str:
        nodes = "".join(f"    {node}\n" for node in self.nodes)
        if self.is_global:
            return f"Sub-topology: {self.id} for global store (will not generate tasks)\n{nodes}"
        return f"Sub-topology: {self.id}\n{nodes}\n"


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


_CHARACTER, _LINE, _PADDING = 7.2, 30, 12  # pixels: of the font below
_GAP_X, _GAP_Y, _MARGIN = 26, 44, 16
_SWEEPS = 4
_STYLE = (
    "text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#1f2328;text-anchor:middle;dominant-baseline:central}"
    ".node{fill:#eef4ff;stroke:#3b6fb6}.topic{fill:#fff6e0;stroke:#b7862c}.store{fill:#e9f7ee;stroke:#3a8a57}"
    ".arrow{fill:none;stroke:#57606a;stroke-width:1.2;marker-end:url(#head)}"
    ".touch{fill:none;stroke:#3a8a57;stroke-dasharray:4 3}#head path{fill:#57606a}"
)

_HEAD = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0L8 4L0 8z"/></marker></defs>'
)


@dataclass(frozen=True, slots=True)
class _BoxLayout:
    """The place of a box: its centre and its width."""

    x: float
    y: float
    width: float


def svg(chart: Chart) -> str:
    """Return the chart as an SVG document; each box has its sub-topology as a tooltip."""
    layouts = _placed(chart)
    width = max((p.x + p.width / 2 for p in layouts.values()), default=0) + _MARGIN
    height = max((p.y for p in layouts.values()), default=0) + _LINE / 2 + _MARGIN
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        f"<style>{_STYLE}</style>{_HEAD}",
        *(_line(layouts[first], layouts[second], "arrow") for first, second in chart.arrows),
        *(_line(layouts[first], layouts[second], "touch") for first, second in chart.touches),
        *(_box(box, layouts[box], chart.groups) for box in chart.boxes),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _placed(chart: Chart) -> dict[Box, _BoxLayout]:
    layers = _layers(chart)
    widths = {box: len(box.name) * _CHARACTER + 2 * _PADDING for box in chart.boxes}
    totals = [sum(widths[box] for box in layer) + _GAP_X * (len(layer) - 1) for layer in layers]
    layouts: dict[Box, _BoxLayout] = {}
    for depth, (layer, total) in enumerate(zip(layers, totals, strict=True)):
        x = _MARGIN + (max(totals) - total) / 2
        for box in layer:
            y = _MARGIN + _LINE / 2 + depth * (_LINE + _GAP_Y)
            layouts[box] = _BoxLayout(x + widths[box] / 2, y, widths[box])
            x += widths[box] + _GAP_X
    return layouts


def _layers(chart: Chart) -> list[list[Box]]:
    """Place each box below all that send to it, a store below the first node that uses it, with few crossings."""
    edges = _without_cycles(chart.boxes, [*chart.arrows, *chart.touches])
    depth = dict.fromkeys(chart.boxes, 0)
    for _ in chart.boxes:  # the longest way from a source is no longer than that
        moved = {second: depth[first] + 1 for first, second in edges if depth[second] <= depth[first]}
        if not moved:
            break
        depth |= moved
    layers: list[list[Box]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for box in chart.boxes:
        layers[depth[box]].append(box)
    return _untangled(layers, edges)


def _without_cycles(boxes: Sequence[Box], edges: Sequence[tuple[Box, Box]]) -> list[tuple[Box, Box]]:
    """Return the edges but those that lead back: a topic may be written by a node that reads it."""
    following: dict[Box, list[Box]] = {box: [] for box in boxes}
    for first, second in edges:
        following[first].append(second)
    entered = {second for _, second in edges}
    starts = [box for box in boxes if box not in entered]
    state: dict[Box, int] = {}
    back: set[tuple[Box, Box]] = set()
    for start in [*starts, *boxes]:
        stack = [(start, iter(following[start]))] if start not in state else []
        state.setdefault(start, 1)
        while stack:
            box, rest = stack[-1]
            child = next(rest, None)
            if child is None:
                state[box] = 2
                stack.pop()
            elif child not in state:
                state[child] = 1
                stack.append((child, iter(following[child])))
            elif state[child] == 1:
                back.add((box, child))
    return [edge for edge in edges if edge not in back]


def _untangled(layers: list[list[Box]], edges: Sequence[tuple[Box, Box]]) -> list[list[Box]]:
    """Sort the boxes of each layer by the mean place of their neighbours above, then below, and again."""
    above: dict[Box, list[Box]] = {}
    below: dict[Box, list[Box]] = {}
    for first, second in edges:
        above.setdefault(second, []).append(first)
        below.setdefault(first, []).append(second)
    at = {box: (number + 0.5) / len(layer) for layer in layers for number, box in enumerate(layer)}
    for sweep in range(_SWEEPS):
        neighbours = below if sweep % 2 else above
        for layer in reversed(layers) if sweep % 2 else layers:
            means = {b: sum(at[n] for n in neighbours.get(b, [b])) / len(neighbours.get(b, [b])) for b in layer}
            layer.sort(key=means.__getitem__)
            at |= {box: (number + 0.5) / len(layer) for number, box in enumerate(layer)}
    return layers


def _box(box: Box, layout: _BoxLayout, groups: Mapping[int, str]) -> str:
    left, top = layout.x - layout.width / 2, layout.y - _LINE / 2
    round_by = {"topic": _LINE / 2, "store": 8, "node": 3}[box.kind]
    title = f"{box.kind} {box.name}" + ("" if box.group is None else f", {groups[box.group]}")
    return (
        f'<g><title>{escape(title)}</title><rect class="{box.kind}" x="{left:.1f}" y="{top:.1f}" '
        f'width="{layout.width:.1f}" height="{_LINE}" rx="{round_by:.0f}"/>'
        f'<text x="{layout.x:.1f}" y="{layout.y:.1f}">{escape(box.name)}</text></g>'
    )


def _line(first: _BoxLayout, second: _BoxLayout, kind: str) -> str:
    down = second.y > first.y
    start, end = first.y + _LINE / 2 * (1 if down else -1), second.y - _LINE / 2 * (1 if down else -1)
    middle = (start + end) / 2
    return (
        f'<path class="{kind}" d="M{first.x:.1f} {start:.1f}C{first.x:.1f} {middle:.1f} '
        f'{second.x:.1f} {middle:.1f} {second.x:.1f} {end:.1f}"/>'
    )


@dataclass(frozen=True, slots=True)
class TopologyDescription:
    """Kafka's ``TopologyDescription``."""

    subtopologies: tuple[DescribedSubTopology, ...]

    def __str__(self) -> str:
        return "Topologies:\n " + "".join(f"  {sub}" for sub in self.subtopologies)

    def to_dict(self) -> dict[str, Any]:
        """Return the description as plain lists and dicts."""
        return {
            "sub_topologies": [
                {"id": sub.id, "global": sub.is_global, "nodes": [_node_dict(n) for n in sub.nodes]}
                for sub in self.subtopologies
            ]
        }

    def to_json(self, indent: int | None = 2) -> str:
        """Return the description as JSON."""
        return json.dumps(self.to_dict(), indent=indent)

    def to_mermaid(self) -> str:
        """Return the description as a Mermaid flow chart: topics, nodes, stores and their connections."""
        return mermaid(chart_of(self.subtopologies))

    def to_dot(self) -> str:
        """Return the same in the language of Graphviz."""
        return dot(chart_of(self.subtopologies))

    def to_svg(self) -> str:
        """Return the same as a picture."""
        return svg(chart_of(self.subtopologies))


def _node_dict(described: DescribedNode) -> dict[str, Any]:
    facts: dict[str, Any]
    match described.node:
        case SourceNode(topics=topics, pattern=pattern):
            facts = {"type": "source", "topics": list(topics)} | ({"pattern": pattern} if pattern else {})
        case ProcessorNode(stores=stores, operation=operation):
            facts = {"type": "processor", "operation": type(operation).__name__, "stores": list(stores)}
        case SinkNode(topic=topic, topic_fn=topic_fn):
            facts = {"type": "sink", "topic": topic} | ({"topic_function": topic_fn.location} if topic_fn else {})
    return {
        "name": described.node.name,
        **facts,
        "successors": list(described.successors),
        "predecessors": list(described.predecessors),
    }


_OF_NODE = re.compile(r"(Source|Processor|Sink): (\S+) \((topics|stores|topic|extractor class): \[?(.*?)\]?\)")
_MOST_BOXES = 1_000


def graph_in_text(text: str) -> dict[str, Any]:
    r"""Read the text of a topology, in Kafka's form, back as a graph: boxes, arrows, and stores that are touched.

    A server of SQL says in this form what a query runs, be it Penstock's or another one.

    >>> source = "    Source: S (topics: [in])\n      --> P\n"
    >>> graph = graph_in_text(f"Topologies:\n   Sub-topology: 0\n{source}    Processor: P (stores: [counts])\n")
    >>> [(box["kind"], box["name"]) for box in graph["boxes"]]
    [('node', 'S'), ('topic', 'in'), ('node', 'P'), ('store', 'counts')]
    >>> graph["arrows"], graph["touches"]
    ([['topic in', 'node S'], ['node S', 'node P']], [['node P', 'store counts']])
    """
    boxes: dict[str, dict[str, str]] = {}
    arrows: list[list[str]] = []
    touches: list[list[str]] = []

    def box(kind: str, name: str, operation: str = "") -> str:
        identity = f"{kind} {name}"
        boxes.setdefault(identity, {"id": identity, "kind": kind, "name": name, "operation": operation})
        return identity

    node = ""
    for line in map(str.strip, text.splitlines()):
        if len(boxes) >= _MOST_BOXES:
            break
        if (match := _OF_NODE.match(line)) is not None:
            role, name, what, listed = match.groups()
            node = box("node", name, role)
            named = [each.strip() for each in listed.split(",") if each.strip()]
            if what == "stores":
                touches += [[node, box("store", each)] for each in named]
            elif role == "Source":
                arrows += [[box("topic", each), node] for each in named]
            elif what == "topic":
                arrows += [[node, box("topic", each)] for each in named]
        elif node and line.startswith("--> ") and line != "--> none":
            arrows += [[node, f"node {each.strip()}"] for each in line.removeprefix("--> ").split(",")]
    drawn_arrows = [[start, end] for start, end in arrows if start in boxes and end in boxes]
    return {"boxes": list(boxes.values()), "arrows": drawn_arrows, "touches": touches}


class _Graph(Protocol):
    """The part of a topology that its description shows."""

    @property
    def nodes(self) -> Mapping[str, Node]: ...

    @property
    def node_groups(self) -> tuple[tuple[str, ...], ...]: ...

    def is_global(self, group: tuple[str, ...]) -> bool: ...


def describe(graph: _Graph) -> TopologyDescription:
    """Describe a topology: its sub-topologies in order of their numbers, each with its nodes in Kafka's order."""
    return TopologyDescription(tuple(_describe(graph, i, group) for i, group in enumerate(graph.node_groups)))


def _describe(graph: _Graph, number: int, group: tuple[str, ...]) -> DescribedSubTopology:
    if graph.is_global(group):
        source, processor = group[0], group[1]
        pair = (
            DescribedNode(graph.nodes[source], (processor,), ()),
            DescribedNode(graph.nodes[processor], (), (source,)),
        )
        return DescribedSubTopology(number, pair, is_global=True)
    parents = {name: parents_of(graph.nodes[name]) for name in group}
    sizes = dict.fromkeys(group, 1)
    order = TreeOrder(sizes)
    successors = {name: order.new_set() for name in group}
    predecessors = {name: order.new_set() for name in group}

    def grow(name: str, by: int) -> None:
        sizes[name] += by
        for parent in predecessors[name].names():
            grow(parent, by)

    # Java links the nodes in the order of a hash map, while the sizes that order the sets still grow.
    for name in hash_order(group):
        for parent in parents[name]:
            predecessors[name].add(parent)
            successors[parent].add(name)
            grow(parent, sizes[name])
    ordered = sorted(group, key=lambda n: (-sizes[n], n))
    nodes = tuple(
        DescribedNode(graph.nodes[n], tuple(successors[n].names()), tuple(predecessors[n].names())) for n in ordered
    )
    return DescribedSubTopology(number, nodes, is_global=False)


@dataclass(slots=True, eq=False)
class _Entry:
    name: str
    parent: _Entry | None
    left: _Entry | None = None
    right: _Entry | None = None
    red: bool = True


class TreeOrder:
    """The order by larger size, then name. The sizes may change while the sets are filled, as they do in Java."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes

    def before(self, left: str, right: str) -> bool:
        return (-self._sizes[left], left) < (-self._sizes[right], right)

    def new_set(self) -> TreeSet:
        return TreeSet(self)


class TreeSet:
    """A red-black tree, balanced as ``java.util.TreeMap``: with changing sizes its shape decides the order."""

    def __init__(self, order: TreeOrder) -> None:
        self._order = order
        self._root: _Entry | None = None

    def names(self) -> Iterator[str]:
        """Yield the names in order."""
        return iter(list(self._walk(self._root)))

    def _walk(self, entry: _Entry | None) -> Iterator[str]:
        if entry:
            yield from self._walk(entry.left)
            yield entry.name
            yield from self._walk(entry.right)

    def add(self, name: str) -> None:
        at, parent, left = self._root, None, False
        while at:
            if at.name == name:
                return
            parent, left = at, self._order.before(name, at.name)
            at = at.left if left else at.right
        entry = _Entry(name, parent)
        if parent is None:
            self._root = entry
        elif left:
            parent.left = entry
        else:
            parent.right = entry
        self._balance(entry)

    def _balance(self, entry: _Entry) -> None:
        while entry.parent and entry.parent.red and entry.parent.parent:
            parent, grand = entry.parent, entry.parent.parent
            on_left = parent is grand.left
            uncle = grand.right if on_left else grand.left
            if uncle and uncle.red:
                parent.red = uncle.red = False
                grand.red = True
                entry = grand
                continue
            if entry is (parent.right if on_left else parent.left):
                self._rotate(parent, left=on_left)
                entry, parent = parent, entry
            parent.red = False
            grand.red = True
            self._rotate(grand, left=not on_left)
        if self._root:
            self._root.red = False

    def _rotate(self, entry: _Entry, *, left: bool) -> None:
        up = entry.right if left else entry.left
        if up is None:
            return
        inner = up.left if left else up.right
        if left:
            entry.right, up.left = inner, entry
        else:
            entry.left, up.right = inner, entry
        if inner:
            inner.parent = entry
        up.parent, parent, entry.parent = entry.parent, entry.parent, up
        if parent is None:
            self._root = up
        elif parent.left is entry:
            parent.left = up
        else:
            parent.right = up
