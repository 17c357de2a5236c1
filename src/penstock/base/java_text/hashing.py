"""The order in which Java's hash maps have texts."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["copy_order", "hash_order", "string_hash"]

_LEAST_BUCKETS = 16


def string_hash(text: str) -> int:
    """Return the hash of a text, without its sign. Java's ``String.hashCode``.

    >>> string_hash("name"), string_hash("")
    (3373707, 0)
    """
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (code * 31 + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return code


def hash_order(texts: Iterable[str]) -> list[str]:
    """Texts in the order of a ``HashSet`` or ``HashMap`` to which they were added one by one, each of them once.

    >>> hash_order(["name", "topic", "file"])
    ['file', 'name', 'topic']
    """
    elements = list(dict.fromkeys(texts))
    buckets = _LEAST_BUCKETS
    while buckets * 3 // 4 < len(elements):
        buckets *= 2
    return _walked(elements, buckets)


def copy_order(texts: Iterable[str]) -> list[str]:
    """Texts in the order of a ``HashMap`` that is the copy of another map: it is no larger than it must be.

    >>> copy_order(["name", "connector.class", "tasks.max", "file", "topic"])
    ['name', 'connector.class', 'topic', 'file', 'tasks.max']
    """
    elements = list(texts)
    return _walked(elements, 1 << (len(elements) * 4 // 3).bit_length())


def _walked(texts: list[str], buckets: int) -> list[str]:
    hashes = {text: string_hash(text) for text in texts}
    return sorted(texts, key=lambda text: (hashes[text] ^ hashes[text] >> 16) & (buckets - 1))
