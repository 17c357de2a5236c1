"""The iteration order of Java's TreeSet, for texts that must equal Java's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

__all__ = ["TreeOrder", "TreeSet"]


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
