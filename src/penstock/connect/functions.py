"""Connectors and transformations as functions: a generator is a source, a function of batches is a sink.

Decorators make them; they are found in installed packages (entry points) and in files (``file.py:name``).
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from penstock.base.durations import duration_ms
from penstock.connect.api import (
    Connector,
    ExactlyOnce,
    OffsetReader,
    SinkConnector,
    SinkTask,
    SourceConnector,
    SourceTask,
)
from penstock.connect.config import NO_DEFAULT, ConfigDef, Importance, Kind, Password, Setting
from penstock.connect.data import ConnectRecord, Header, Headers, Schema, SinkRecord, SourceRecord, Struct
from penstock.connect.plugins import Plugin, PluginKind, Plugins, connector_plugin, standard_plugins
from penstock.connect.registry_converters import REGISTRY_CONVERTERS
from penstock.connect.transforms import Transformation
from penstock.errors import ConfigError, ConnectError, PenstockError

__all__ = [
    "ENTRY_POINTS",
    "FunctionConnector",
    "FunctionSourceTask",
    "FunctionTransform",
    "Offsets",
    "Record",
    "Settings",
    "connector_of",
    "definition_of",
    "file_plugins",
    "installed_plugins",
    "load_plugin",
    "plugin_of",
    "setting_name",
    "sink",
    "source",
    "transform",
]

KINDS: dict[type, Kind] = {
    bool: Kind.BOOLEAN,
    int: Kind.LONG,
    float: Kind.DOUBLE,
    str: Kind.STRING,
    list: Kind.LIST,
    Password: Kind.PASSWORD,
}


class Settings:
    """The parsed settings of a connector, as attributes and by name.

    Example:
        >>> settings = Settings({"url": "http://localhost", "batch.size": 10})
        >>> settings.url, settings.batch_size, settings["batch.size"]
        ('http://localhost', 10, 10)
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values", {})
        setting = next((each for each in (name, setting_name(name)) if each in values), None)
        if setting is None:
            raise AttributeError(f"there is no setting {setting_name(name)!r}; there are {', '.join(values) or 'none'}")
        return values[setting]

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"


def setting_name(keyword: str) -> str:
    """Return the name of a setting in configs: ``batch_size`` is ``batch.size``."""
    return keyword.replace("_", ".")


def definition_of(keywords: Mapping[str, Any]) -> ConfigDef:
    """Return the definition of settings: a type is a setting that must be set, any other value its default.

    Args:
        keywords: ``str``, ``int``, ``float``, ``bool``, ``list`` or ``Password``; a default of such a type; or a whole
            ``Setting``, of which the name may be empty.

    Raises:
        ConfigError: A value is none of them.

    Example:
        >>> [(s.name, s.kind.name, s.required) for s in definition_of({"url": str, "batch_size": 100})]
        [('url', 'STRING', True), ('batch.size', 'LONG', False)]
    """
    return ConfigDef([_setting(keyword, value) for keyword, value in keywords.items()])


def _setting(keyword: str, value: Any) -> Setting:
    name = setting_name(keyword)
    if isinstance(value, Setting):
        return value
    if isinstance(value, type) and value in KINDS:
        return Setting(name=name, kind=KINDS[value], importance=Importance.HIGH, default=NO_DEFAULT)
    kind = next((KINDS[each] for each in KINDS if type(value) is each), None)
    if kind is None:
        raise ConfigError(
            f"the setting {keyword} is {value!r}",
            hint="Give a type (str, int, float, bool, list, Password), a default of such a type, or a Setting.",
        )
    return Setting(name=name, kind=kind, default=value)


D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Record:
    """A record that a source function yields.

    Attributes:
        topic: The topic.
        value: The value: text, bytes, numbers, lists, dicts, or a ``Struct`` with a schema.
        key: The key.
        partition: The part of the source that it comes from, such as ``{"url": "..."}``.
        offset: The position in that part to go on from after it. Records without one come again after a restart.
        timestamp: Milliseconds since 1970; by default the time of writing.
        headers: Names and values.
        value_schema: The schema of the value, if it has one.
        key_schema: The schema of the key, if it has one.

    Example:
        >>> Record("lines", "GET /", partition={"file": "a"}, offset={"line": 1}).to_source_record().source_offset
        {'line': 1}
    """

    topic: str
    value: Any = None
    key: Any = None
    partition: Mapping[str, Any] | None = None
    offset: Mapping[str, Any] | None = None
    timestamp: int | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    value_schema: Schema | None = None
    key_schema: Schema | None = None

    def to_source_record(self) -> SourceRecord:
        """Return the record as the worker takes it."""
        return SourceRecord(
            topic=self.topic,
            key=self.key,
            key_schema=self.key_schema,
            value=self.value,
            value_schema=self.value_schema,
            timestamp=self.timestamp,
            headers=Headers(Header(name, value) for name, value in self.headers.items()),
            source_partition=self.partition,
            source_offset=self.offset,
        )


class Offsets:
    """The stored offsets of a source, by source partition."""

    def __init__(self, reader: OffsetReader) -> None:
        self._reader = reader

    def get(self, partition: Mapping[str, Any], default: D | None = None) -> dict[str, Any] | D | None:
        """Return the offset to go on from; the default if there is none."""
        offset = self._reader.offset(partition)
        return default if offset is None else offset


SourceFunction = Callable[[Settings, Offsets], Iterable[Any]]
MOST_RECORDS = 1000
MOST_SECONDS = 0.5
LONGEST_WAIT = 0.5


class FunctionSourceTask(SourceTask):
    """A task that polls a generator. It yields a Record, a list of them (one transaction), or a time to wait."""

    function: ClassVar[SourceFunction]
    definition: ClassVar[ConfigDef]

    def start(self, settings: Mapping[str, str]) -> None:
        self._stopped = threading.Event()
        self._wait_until = 0.0
        parsed = Settings(self.definition.parse(settings))
        self._yielded: Iterator[Any] | None = iter(type(self).function(parsed, Offsets(self.context.offset_reader)))

    def poll(self) -> Sequence[SourceRecord] | None:
        left = self._wait_until - time.monotonic()
        if left > 0 or self._yielded is None:
            self._stopped.wait(min(left, LONGEST_WAIT) if self._yielded is not None else LONGEST_WAIT)
            if self._yielded is None or time.monotonic() < self._wait_until:
                return None
        records: list[SourceRecord] = []
        deadline = time.monotonic() + MOST_SECONDS
        while len(records) < MOST_RECORDS and not self._stopped.is_set() and time.monotonic() < deadline:
            try:
                yielded = next(self._yielded)
            except StopIteration:
                self._yielded = None
                break
            if isinstance(yielded, int | float | str | timedelta) and not isinstance(yielded, bool):
                self._wait_until = time.monotonic() + _seconds(yielded)
                break
            records += _records(yielded)
        return records

    @property
    def has_ended(self) -> bool:
        """Whether the function has returned: there will be no more records."""
        return self._yielded is None

    def stop(self) -> None:
        self._stopped.set()


class FunctionSinkTask(SinkTask):
    """A task that calls a function with each batch, as a list of records or as an Arrow table."""

    function: ClassVar[Callable[[Settings, Any], object]]
    definition: ClassVar[ConfigDef]
    takes_table: ClassVar[bool]

    def start(self, settings: Mapping[str, str]) -> None:
        self._settings = Settings(self.definition.parse(settings))

    def put(self, records: Sequence[SinkRecord]) -> None:
        if records:
            type(self).function(self._settings, to_table(records) if self.takes_table else list(records))


def to_table(records: Sequence[SinkRecord]) -> pa.Table:
    """Return records as a table: a column for each field of their values, or one column ``value``.

    >>> to_table([SinkRecord(topic="t", value={"path": "/", "status": 200})]).to_pylist()
    [{'path': '/', 'status': 200}]
    """
    values = [record.value.to_dict() if isinstance(record.value, Struct) else record.value for record in records]
    if values and all(isinstance(value, dict) for value in values):
        return pa.Table.from_pylist(values)
    return pa.table({"value": values})


def _seconds(yielded: float | str | timedelta) -> float:
    return float(yielded) if isinstance(yielded, int | float) else duration_ms(yielded, "the time to wait") / 1000


def _records(yielded: Any) -> list[SourceRecord]:
    elements = yielded if isinstance(yielded, list | tuple) else [yielded]
    records = [each.to_source_record() if isinstance(each, Record) else each for each in elements]
    for each in records:
        if not isinstance(each, SourceRecord):
            raise ConnectError(
                f"the source yielded {each!r}",
                hint="Yield a Record, a list of them, or a time to wait (seconds, or a text such as '10s').",
            )
    return records


F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R", bound=ConnectRecord)
CONNECTOR = "__penstock_connector__"  # of the function: its connector's class
TRANSFORM = "__penstock_transform__"
TABLES = ("Table", "pa.Table", "pyarrow.Table")


class FunctionConnector(Connector):
    """A connector that a function is behind: the tasks have its own config."""

    def start(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        self.config.parse(settings)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [self._settings] * (max_tasks if isinstance(self, SinkConnector) else 1)


def source(name: str, /, **settings: Any) -> Callable[[F], F]:
    """Make a source of a generator ``f(settings, offsets)``, under a name by which configs name it.

    The generator yields `Record` objects, lists of them that belong into one transaction, or times to wait (seconds, or
    a text such as ``"10s"``). It goes on from ``offsets.get(partition)``, the offset of the last written record.

    Args:
        name: The connector's name.
        settings: Its settings: a type, or a default; ``poll_ms`` is the setting ``poll.ms``.

    Raises:
        ConfigError: The function is not a generator of two parameters, or a setting is wrong.

    Example:
        >>> from penstock.connect.functions import Record
        >>> @source("Counter", topic=str, to=3)
        ... def counter(settings, offsets):
        ...     first = offsets.get({"of": "counter"}, {"next": 0})["next"]
        ...     for number in range(first, settings.to):
        ...         yield Record(settings.topic, number, partition={"of": "counter"}, offset={"next": number + 1})
        >>> from penstock.connect.testing import ConnectTestDriver
        >>> driver = ConnectTestDriver(counter, {"topic": "numbers"})
        >>> [record.value for record in driver.poll()], driver.offsets()
        ([0, 1, 2], [({'of': 'counter'}, {'next': 3})])
    """
    definition = definition_of(settings)

    def decorated(function: F) -> F:
        _check(function, ("settings", "offsets"), "source")
        task = type(
            f"{name}Task",
            (FunctionSourceTask,),
            {"java_class": f"{name}Task", "function": staticmethod(function), "definition": definition},
        )
        setattr(function, CONNECTOR, _connector(name, function, SourceConnector, definition, task))
        return function

    return decorated


def sink(name: str, /, **settings: Any) -> Callable[[F], F]:
    """Make a sink of a function ``f(settings, batch)``, under a name by which configs name it.

    The batch is a list of records, or an Arrow table of their values if the parameter is annotated so. If the function
    raises, the task fails and the records come again; of a ``RetriableError``, after a moment.

    Args:
        name: The connector's name.
        settings: Its settings: a type, or a default.

    Raises:
        ConfigError: The function has not two parameters, or a setting is wrong.

    Example:
        >>> @sink("Printed", prefix=">")
        ... def printed(settings, batch):
        ...     for record in batch:
        ...         print(settings.prefix, record.value, sep="")
        >>> from penstock.connect.testing import ConnectTestDriver
        >>> driver = ConnectTestDriver(printed, {"topics": "lines"})
        >>> driver.produce("lines", "GET /")
        >>> _ = driver.put()
        >GET /
    """
    definition = definition_of(settings)

    def decorated(function: F) -> F:
        names = _check(function, ("settings", "batch"), "sink")
        annotation = inspect.signature(function).parameters[names[1]].annotation
        takes_table = annotation in TABLES or getattr(annotation, "__module__", "").startswith("pyarrow")
        body = {"function": staticmethod(function), "definition": definition, "takes_table": takes_table}
        task = type(f"{name}Task", (FunctionSinkTask,), {"java_class": f"{name}Task", **body})
        setattr(function, CONNECTOR, _connector(name, function, SinkConnector, definition, task))
        return function

    return decorated


class FunctionTransform(Transformation):
    """A transformation that a function is behind."""

    function: ClassVar[Callable[..., Any]]
    takes_settings: ClassVar[bool]

    def configure(self, settings: Mapping[str, Any]) -> None:
        self._settings = Settings(self.config.parse(settings))

    def apply(self, record: R) -> R | None:
        function = type(self).function
        transformed: R | None = function(record, self._settings) if self.takes_settings else function(record)
        return transformed


def transform(name: str, /, **settings: Any) -> Callable[[F], F]:
    """Make a transformation of a function ``f(record)`` or ``f(record, settings)``; None drops the record.

    A function in a file needs no decorator: ``transforms.mask.type=my_transforms.py:mask``.

    Example:
        >>> @transform("Shout", suffix="!")
        ... def shout(record, settings):
        ...     return record.with_(value=record.value.upper() + settings.suffix)
    """
    definition = definition_of(settings)

    def decorated(function: F) -> F:
        setattr(function, TRANSFORM, transformation_of(name, function, definition))
        return function

    return decorated


def transformation_of(name: str, function: Callable[..., Any], definition: ConfigDef | None = None) -> type[Any]:
    """Return the transformation of a function, decorated or not."""
    count = len(_parameters(function))
    if count not in (1, 2):
        raise ConfigError(f"the transformation {name} has {count} parameters", hint="Write def name(record, settings).")
    body = {"function": staticmethod(function), "takes_settings": count > 1, "config": definition or ConfigDef()}
    return type(name, (FunctionTransform,), {"java_class": name, "__doc__": function.__doc__, **body})


def _connector(
    name: str, function: Callable[..., Any], base: type[Connector], definition: ConfigDef, task: type[Any]
) -> type[Any]:
    body: dict[str, Any] = {"java_class": name, "config": definition, "task_class": task, "__doc__": function.__doc__}
    if base is SourceConnector:
        body["exactly_once_support"] = lambda _self, _settings: ExactlyOnce.SUPPORTED
    return type(name, (FunctionConnector, base), body)


def _check(function: Callable[..., Any], required: Iterable[str], what: str) -> list[str]:
    names = _parameters(function)
    shown = f"def {getattr(function, '__name__', 'name')}({', '.join(required)})"
    if len(names) != len(list(required)):
        raise ConfigError(f"the {what} function has {len(names)} parameters", hint=f"Write {shown}: ...")
    if what == "source" and not inspect.isgeneratorfunction(inspect.unwrap(function)):
        raise ConfigError("the source function is not a generator", hint=f"Write {shown}, and yield records in it.")
    return names


def _parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


ENTRY_POINTS = "penstock.connectors"


@lru_cache(maxsize=4)
def _announced(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:  # noqa: ARG001 - where packages are looked for
    """Return the entry points of installed packages, by name: looking for them opens a file of each package."""
    return tuple(sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name))


def installed_plugins(folders: Iterable[Path | str] = (), on_problem: Callable[[str], object] | None = None) -> Plugins:
    """Return Kafka's plugins, those of installed packages, and by reference those of files in some folders.

    Args:
        folders: Where files of connectors may be; a reference such as ``my_connectors.py:http_poll`` is relative to the
            first that has it. Files elsewhere are refused, as a config must not be able to run any file.
        on_problem: Called with a sentence about each package that cannot be loaded; by default that is an error.

    Raises:
        ConfigError: An installed package cannot be loaded.
    """
    allowed = tuple(Path(folder).expanduser().resolve() for folder in folders)
    plugins = standard_plugins()
    for converter in REGISTRY_CONVERTERS:
        plugins.add(
            Plugin(converter.java_class, (PluginKind.CONVERTER,), converter, converter.config, model=converter.model)
        )
    for entry in _announced(tuple(sys.path)):
        try:
            plugins.add(plugin_of(entry.load(), entry.name))
        except Exception as error:
            message = f"the connector {entry.name} ({entry.value}) cannot be loaded: {error}"
            if on_problem is None:
                raise ConfigError(message, hint="Repair or remove the package that it is from.") from error
            on_problem(message)
    plugins.references = lambda reference: load_plugin(reference, allowed) if ".py:" in reference else None
    return plugins


def load_plugin(reference: str, folders: Iterable[Path] = ()) -> Plugin:
    """Return the connector or transformation that ``file.py:name`` names.

    Args:
        reference: The file and the name of a function or class in it.
        folders: The folders in which the file may be; by default the current one.

    Raises:
        ConfigError: There is no such file in them, it cannot be run, or the name is neither.
    """
    path_text, _, name = reference.rpartition(":")
    roots: tuple[Path, ...] = tuple(folders) or (Path.cwd(),)
    candidates = ((root / path_text).resolve() for root in roots)
    path = next((candidate for candidate in candidates if candidate.is_file()), None)
    if path is None or not any(path.is_relative_to(root) for root in roots):
        places = ", ".join(map(str, roots))
        raise ConfigError(f"there is no file {path_text} in {places}", hint="Give its path, relative to that folder.")
    module = _module(path)
    member = getattr(module, name, None)
    if member is None:
        raise ConfigError(f"{path} has no {name!r}", hint=f"It has {', '.join(_names(module)) or 'no connectors'}.")
    return plugin_of(member, name)


def file_plugins(path: Path) -> list[Plugin]:
    """Return all connectors and transformations of a Python file.

    Raises:
        ConfigError: It cannot be run.
    """
    module = _module(path.resolve())
    own = [member for member in vars(module).values() if getattr(member, "__module__", None) == module.__name__]
    return [plugin_of(member, member.__name__) for member in own if _is_plugin(member)]


def _is_plugin(member: object) -> bool:
    if hasattr(member, CONNECTOR) or hasattr(member, TRANSFORM):
        return True
    return isinstance(member, type) and issubclass(member, Connector | Transformation) and hasattr(member, "java_class")


def plugin_of(member: Any, name: str) -> Plugin:
    """Return the plugin of a decorated function, a connector's or transformation's class, or a function of records.

    Raises:
        ConfigError: It is none of them.
    """
    if hasattr(member, CONNECTOR):
        return connector_plugin(getattr(member, CONNECTOR))
    implementation = getattr(member, TRANSFORM, member)
    if isinstance(implementation, type) and issubclass(implementation, Connector):
        return connector_plugin(implementation)
    if inspect.isfunction(implementation):
        implementation = transformation_of(name, implementation)
    if isinstance(implementation, type) and issubclass(implementation, Transformation):
        return Plugin(implementation.java_class, (PluginKind.TRANSFORMATION,), implementation, implementation.config)
    raise ConfigError(
        f"{name} is neither a connector nor a transformation, but {type(member).__name__}",
        hint="Decorate the function with @source or @sink, or derive the class from SourceConnector or SinkConnector.",
    )


def connector_of(function: Any) -> type[Connector]:
    """Return the connector's class behind a decorated function."""
    connector: type[Connector] = getattr(function, CONNECTOR)
    return connector


def _module(path: Path) -> ModuleType:
    name = f"penstock_connector_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except PenstockError:
        del sys.modules[name]
        raise
    except Exception as error:
        del sys.modules[name]
        line = next((f.lineno for f in reversed(inspect.trace()) if f.filename == str(path)), None)
        where = str(path) if line is None else f"{path}, line {line}"
        raise ConfigError(f"{where}: {type(error).__name__}: {error}", hint="Correct the file.") from error
    return module


def _names(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if hasattr(value, CONNECTOR) or hasattr(value, TRANSFORM)]
