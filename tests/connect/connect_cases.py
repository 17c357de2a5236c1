"""The recorded cases: the project's own archive, or a folder of them."""

import json
import tarfile
from functools import cache
from pathlib import Path

KINDS = {"rest": "rest", "transforms": "transform", "converters": "converter", "mirror": "mirror"}  # folder -> kind
ARCHIVE = Path(__file__).with_name("cases.tar.xz")


@cache
def _archived(place):
    """The cases of an archive, which all readers of a process share: none changes them."""
    with tarfile.open(place) as archive:
        texts = [archive.extractfile(member).read() for member in archive if member.name.endswith(".json")]
    return [json.loads(text) for text in texts]


def load_cases(place=ARCHIVE, kind=None):
    """All cases of an archive or folder, of one kind or all, by kind and name."""
    place = Path(place)
    if place.is_dir():
        cases = [json.loads(path.read_bytes()) for path in sorted(place.rglob("*.json"))]
    else:
        cases = _archived(place)
    wanted = KINDS.values() if kind is None else (KINDS[kind],)
    chosen = [case for case in cases if isinstance(case, dict) and case.get("kind") in wanted]
    return sorted(chosen, key=lambda case: (case["kind"], case["name"]))
