"""A chart as a picture: boxes in layers from top to bottom, in SVG, without any other program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.topology.description.charts import Box, Chart

__all__ = ["svg"]

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
