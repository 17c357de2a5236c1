"""Places in files as source offsets: the position that Kafka's connector stores, and a note beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.connect.connectors.line_reader import FileNote, FilePlace, LineReader
from penstock.connect.connectors.rotated_lines import named_files
from penstock.connect.data.stored_offsets import NotedOffset
from penstock.errors import ConnectError

__all__ = ["FILENAME", "POSITION", "noted_offset", "place_of_bytes", "stored_places"]

FILENAME, POSITION = "filename", "position"


def noted_offset(place: FilePlace, others: Mapping[str, FilePlace] | None = None) -> NotedOffset:
    """Return the source offset of a place in a file, with a note of how the file is known again.

    Args:
        place: The place.
        others: The places of renamed files that have no offset of their own yet.

    Example:
        >>> offset = noted_offset(FilePlace(8, FileNote(1, 2, "ab", 9, 99), 3))
        >>> offset, offset.note
        ({'position': 8}, '{"file": "1:2:ab:9:99", "lines": 3}')
        >>> [place.position for _, place in stored_places("in.txt", offset)]
        [8]
    """
    if place.note is None and not place.late:
        return NotedOffset({POSITION: place.position}, "")
    note: dict[str, Any] = {"file": _text(place.note), "lines": place.lines}
    if place.late:
        note["late"] = [[each.position, _text(each.note)] for each in place.late]
    if others:
        note["others"] = {name: [each.position, _text(each.note)] for name, each in others.items()}
    return NotedOffset({POSITION: place.position}, json.dumps(note, ensure_ascii=False))


def stored_places(name: str, offset: Mapping[str, Any]) -> Iterator[tuple[str, FilePlace]]:
    """Yield the places, by names of files, in the offset that is stored for a file; also in forms of earlier versions.

    Raises:
        ConnectError: It is none of a file.
    """
    position = offset.get(POSITION)
    if isinstance(position, bool) or not isinstance(position, int):
        raise ConnectError(f"Offset position is the incorrect type: {position!r}", hint="Reset the offsets.")
    if "inode" in offset:
        yield name, place_of_bytes(Path(name), position, offset)
        return
    try:
        note = json.loads(getattr(offset, "note", "") or "{}")
        late = tuple(FilePlace(int(at), FileNote.parse(text)) for at, text in note.get("late", ()))
        places = [(name, FilePlace(position, FileNote.parse(note.get("file")), int(note.get("lines", 0)), late))]
        for other, (at, text) in note.get("others", {}).items():
            places.append((str(other), FilePlace(int(at), FileNote.parse(text))))
    except (ValueError, TypeError, AttributeError):
        places = [(name, FilePlace(position))]  # the note is one of a later version
    yield from places


def place_of_bytes(path: Path, size: int, facts: Mapping[str, Any]) -> FilePlace:
    """Return the place behind so many bytes, as earlier versions stored it: with the inode and first bytes of the file.

    Raises:
        ConnectError: The facts are others.
    """
    try:
        inode, line_count, head = (
            int(facts.get("inode", 0)),
            int(facts.get("lines", 0)),
            bytes.fromhex(facts.get("head", "")),
        )
    except (ValueError, TypeError) as error:
        raise ConnectError(
            f"the stored position in {path} cannot be read: {error}", hint="Reset the offsets of the connector."
        ) from error
    for each in [path, *named_files(path, ())]:
        try:
            reader = LineReader.of(each)
        except OSError:
            continue
        try:
            is_same = inode in (0, reader.identity[1] if reader.identity else 0) and (inode or each == path)
            if is_same and reader.begins_with(head) and reader.go_to_byte(size):
                return FilePlace(reader.place.position, reader.place.note, line_count)
        finally:
            reader.close()
    return FilePlace(lines=line_count)


def _text(note: FileNote | None) -> str | None:
    return None if note is None else note.text()
