"""The recorded cases: the project's own archive, or a folder of them."""

import io
import json
import tarfile
from functools import cache
from pathlib import Path

KINDS = {"rest": "rest", "transforms": "transform", "converters": "converter", "mirror": "mirror"}  # folder -> kind
ARCHIVE = Path(__file__).with_name("cases.tar.xz")


def case_texts(place):
    """The JSON texts of a folder or an archive."""
    place = Path(place)
    if place.is_dir():
        return [path.read_bytes() for path in sorted(place.rglob("*.json"))]
    with tarfile.open(place) as archive:
        return [archive.extractfile(member).read() for member in archive if member.name.endswith(".json")]


def write_archive(file, contents):
    """Write texts by their names to an archive, the same bytes for the same texts."""
    with tarfile.open(file, "w:xz", preset=9) as archive:
        for name, content in contents:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@cache
def _archived(place):
    """The cases of an archive, which all readers of a process share: none changes them."""
    return [json.loads(text) for text in case_texts(place)]


def load_cases(place=ARCHIVE, kind=None):
    """All cases of an archive or folder, of one kind or all, by kind and name."""
    place = Path(place)
    cases = [json.loads(text) for text in case_texts(place)] if place.is_dir() else _archived(place)
    wanted = KINDS.values() if kind is None else (KINDS[kind],)
    chosen = [case for case in cases if isinstance(case, dict) and case.get("kind") in wanted]
    return sorted(chosen, key=lambda case: (case["kind"], case["name"]))
