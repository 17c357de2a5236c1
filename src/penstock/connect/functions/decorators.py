"""The decorators that make connectors and transformations of functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, TypeVar

from penstock.connect.api import Connector, ExactlyOnce, SinkConnector, SourceConnector
from penstock.connect.config import ConfigDef
from penstock.connect.data import ConnectRecord
from penstock.connect.functions.function_settings import Settings, definition_of
from penstock.connect.functions.tasks import FunctionSinkTask, FunctionSourceTask
from penstock.connect.transforms import Transformation
from penstock.errors import ConfigError

__all__ = ["FunctionConnector", "FunctionTransform", "sink", "source", "transform"]

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
        >>> from penstock.connect.functions.record import Record
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
