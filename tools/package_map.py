"""Draws the packages of Penstock and their imports: docs/pictures/packages.svg.

    python tools/package_map.py [--check]

An arrow leads from a package to one that imports it. An import that follows from others has no arrow: what imports
`engines`, which imports `log`, may import `log` too. `tools/check_architecture.py` says when it is not current.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]
from penstock.topology.description import Box, Chart, svg  # noqa: E402
from shape import SOURCES, Shape, floors_of  # noqa: E402

__all__ = ["PICTURE", "picture"]

PICTURE = ROOT / "docs" / "pictures" / "packages.svg"


def picture(root: Path = SOURCES) -> str:
    """Return the picture as SVG: what is imported is above; packages that import each other are one box."""
    arrows = Shape(root).arrows
    names = _together(arrows)
    between = {(names[one], names[other]) for one, other in arrows if names[one] != names[other]}
    boxes = {name: Box("node", name) for name in sorted(set(names.values()))}
    shown = [(boxes[other], boxes[one]) for one, other in sorted(_needed(between))]
    return svg(Chart({}, tuple(boxes.values()), tuple(shown), ()))


def _together(arrows: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Entry -> the name of its box."""
    arrows = set(arrows)
    names = {}
    for entry in {name for arrow in arrows for name in arrow}:
        others = [one for one, other in arrows if other == entry and (entry, one) in arrows]
        names[entry] = ", ".join(sorted([entry, *others]))
    return names


def _needed(arrows: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The arrows without those that follow from others."""
    below: dict[str, set[str]] = {}
    for one, other in arrows:
        below.setdefault(one, set()).add(other)
    reached: dict[str, set[str]] = {}
    for entry in sorted(floors := floors_of(arrows), key=floors.__getitem__):
        direct = below.get(entry, set())
        reached[entry] = direct.union(*(reached[other] for other in direct))
    return {
        (one, other) for one, other in arrows if not any(other in reached[between] for between in below[one] - {other})
    }


def main() -> int:
    """Write the picture, or say that it is not current."""
    if sys.argv[1:] == ["--check"]:
        is_current = PICTURE.exists() and PICTURE.read_text(encoding="utf-8") == picture()
        if not is_current:
            print(f"{PICTURE.relative_to(ROOT)} is not current: run tools/package_map.py")
        return 0 if is_current else 1
    PICTURE.write_text(picture(), encoding="utf-8")
    print(f"written: {PICTURE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    gc.disable()  # syntax trees of the whole package stay until the end
    sys.exit(main())
