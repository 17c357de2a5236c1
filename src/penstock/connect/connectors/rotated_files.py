"""Files beside a path that its log was rotated into, and the order in which they were."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

__all__ = ["base_name", "later_rotated", "named_files", "rotated_files", "rotated_since"]

_SUFFIX = re.compile(
    r"(?P<base>.+?)[.\-_](?P<turn>[0-9]{1,4}|[0-9]{4}-?[0-9]{2}-?[0-9]{2}(?:[T_.\-]?[0-9:\-]{2,12})?)"
    r"(?P<end>\.[A-Za-z]{2,8})?(?P<packing>\.(?:gz|bz2|xz|zst))?",
    re.IGNORECASE,
)
_PACKING = re.compile(r"\.(?:gz|bz2|xz|zst)$", re.IGNORECASE)


def base_name(name: str) -> str:
    """Return the name of the log that a rotated file was, or the name itself.

    >>> [base_name(each) for each in ("app.log.2.gz", "app.log-20240131", "app.2024-01-31.log", "app.log")]
    ['app.log', 'app.log', 'app.log', 'app.log']
    """
    plain = _PACKING.sub("", name)
    suffix = _SUFFIX.fullmatch(plain)
    return suffix["base"] + (suffix["end"] or "") if suffix is not None else plain


def named_files(path: Path, others: Collection[str]) -> Iterator[Path]:
    """Yield all plain files in the folder of a path, without the path itself and those that are followed themselves."""
    try:
        with os.scandir(path.parent) as entries:
            files = [Path(entry.path) for entry in entries if entry.is_file() and entry.name != path.name]
    except OSError:
        return
    yield from (each for each in sorted(files) if str(each) not in others)


def rotated_files(path: Path, others: Collection[str]) -> list[Path]:
    """Return the files that a path was rotated into, by their names, the newest first."""
    rotated = [each for each in named_files(path, others) if _is_rotation(each, path)]
    return sorted(rotated, key=lambda each: (-_time(each), each.name))


def later_rotated(path: Path, old: Path, others: Collection[str]) -> list[Path]:
    """Return the files that a path was rotated into after an old one, the oldest first."""
    return _oldest_first(each for each in rotated_files(path, others) if each != old and _is_later(each, old))


def rotated_since(path: Path, time_ns: int, others: Collection[str]) -> list[Path]:
    """Return the files that a path was rotated into, and that were changed after a time, the oldest first."""
    return _oldest_first(each for each in rotated_files(path, others) if _time(each) > time_ns)


def _oldest_first(files: Iterable[Path]) -> list[Path]:
    once: dict[str, Path] = {}
    for each in files:
        if each.name == _plain(each) or _plain(each) not in once:
            once[_plain(each)] = each  # while one is packed, both are there
    return sorted(once.values(), key=lambda each: (_order(each), _time(each)))


def _is_rotation(path: Path, of: Path) -> bool:
    return path.name != of.name and base_name(path.name) == of.name


def _is_later(path: Path, old: Path) -> bool:
    one, other = _turn(path), _turn(old)
    if one is not None and other is not None and one.isdigit() and other.isdigit() and max(len(one), len(other)) < 5:
        return int(one) < int(other)
    if one is not None and other is not None and len(one) == len(other):
        return one > other
    return _time(path) > _time(old)


def _order(path: Path) -> int:
    """Return the place among those with numbers: the largest number is the oldest file."""
    turn = _turn(path)
    return -int(turn) if turn is not None and turn.isdigit() and len(turn) < 5 else 0


def _turn(path: Path) -> str | None:
    suffix = _SUFFIX.fullmatch(path.name)
    return None if suffix is None else suffix["turn"]


def _plain(path: Path) -> str:
    return _PACKING.sub("", path.name)


def _time(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
