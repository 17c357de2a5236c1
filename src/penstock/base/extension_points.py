"""Extension points: the places where other packages plug in.

An extension point belongs to the module that calls its extensions, which says their type. Extensions come from three
places: `declare`, by which Penstock itself names those of its own packages; `ExtensionPoint.register`, for a program;
and entry points of installed distributions, in the group of the extension point. They are imported when the point is
first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.metadata import EntryPoint

__all__ = ["ExtensionPoint", "declare"]

T = TypeVar("T")

_declared: dict[str, dict[str, str]] = {}  # group -> name -> "module:object"


def declare(group: str, name: str, target: str) -> None:
    """Name an extension of Penstock itself, without importing it.

    Args:
        group: The group of the extension point.
        name: The name of the extension.
        target: Its place, as in entry points: ``module:object``.
    """
    _declared.setdefault(group, {})[name] = target


class ExtensionPoint(Generic[T]):
    """A place where extensions of one type plug in.

    Args:
        group: The group of entry points, such as ``penstock.applications``.
        check: Returns whether an object is such an extension.
        required: What an extension must be, for messages.

    Example:
        >>> SHOUTERS = ExtensionPoint("example.shouters", callable, "a function of a text")
        >>> SHOUTERS.register("loud", str.upper)
        >>> SHOUTERS.get("loud")("penstock")
        'PENSTOCK'
        >>> sorted(SHOUTERS.all())
        ['loud']
    """

    def __init__(self, group: str, check: Callable[[object], bool], required: str) -> None:
        self.group = group
        self._check, self._required = check, required
        self._registered: dict[str, T] = {}
        self._loaded: dict[EntryPoint, T] = {}

    def register(self, name: str, extension: T) -> None:
        """Add an extension in this process. A later one of the same name takes its place.

        Raises:
            ConfigError: It is not what this extension point takes.
        """
        self._registered[name] = self._checked(name, extension, "registered in this process")

    def unregister(self, name: str) -> None:
        """Remove an extension that `register` has added."""
        self._registered.pop(name, None)

    def names(self) -> list[str]:
        """Return the names of all extensions, without importing them."""
        return sorted({*self._registered, *self._entry_points()})

    def get(self, name: str) -> T:
        """Return the extension of this name.

        Raises:
            EnvironmentProblemError: There is none, or it cannot be imported.
            ConfigError: Two distributions have one of this name, or it is not what this extension point takes.
        """
        from penstock.errors import EnvironmentProblemError

        if name in self._registered:
            return self._registered[name]
        entry_point = self._entry_points().get(name)
        if entry_point is None:
            raise EnvironmentProblemError(
                f"no extension {name!r} is installed for {self.group}; there are: {', '.join(self.names()) or 'none'}",
                hint="Install the distribution that has it, or register it: see docs/how-to/extensions.md.",
            )
        return self._load(entry_point)

    def all(self) -> dict[str, T]:
        """Return all extensions by name; raises as `get`."""
        installed = self._entry_points()  # looked for once: that reads the metadata of all distributions
        return {
            name: self._registered[name] if name in self._registered else self._load(installed[name])
            for name in sorted({*self._registered, *installed})
        }

    def _entry_points(self) -> dict[str, EntryPoint]:
        from importlib.metadata import EntryPoint, entry_points  # here: `import penstock` does without them

        from penstock.errors import ConfigError

        by_name = {name: EntryPoint(name, at, self.group) for name, at in _declared.get(self.group, {}).items()}
        for each in entry_points(group=self.group):
            other = by_name.setdefault(each.name, each)
            if other.value != each.value:
                raise ConfigError(
                    f"there are two extensions {each.name!r} for {self.group}: {_place(other)} and {_place(each)}",
                    hint="Uninstall one of the two distributions.",
                )
        return by_name

    def _load(self, entry_point: EntryPoint) -> T:
        from penstock.errors import EnvironmentProblemError

        if entry_point not in self._loaded:
            try:
                extension = entry_point.load()
            except (ImportError, AttributeError) as error:
                raise EnvironmentProblemError(
                    f"the extension {entry_point.name!r} for {self.group}, {_place(entry_point)}, "
                    f"cannot be imported: {error}",
                    hint="Install what it needs, or uninstall the distribution that has it.",
                ) from error
            self._loaded[entry_point] = self._checked(entry_point.name, extension, _place(entry_point))
        return self._loaded[entry_point]

    def _checked(self, name: str, extension: Any, origin: str) -> T:
        from penstock.errors import ConfigError

        if not self._check(extension):
            raise ConfigError(
                f"the extension {name!r} for {self.group} must be {self._required}, not {extension!r} ({origin})",
                hint="See docs/how-to/extensions.md.",
            )
        checked: T = extension
        return checked


def _place(entry_point: EntryPoint) -> str:
    return f"{entry_point.value} of {entry_point.dist.name}" if entry_point.dist is not None else entry_point.value
