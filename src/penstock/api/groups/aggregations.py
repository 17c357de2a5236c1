"""One aggregation: its functions, its store and its name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.api.groups.agg import BuiltInAggregator
from penstock.api.options import Materialized
from penstock.api.serdes import UNKNOWN
from penstock.errors import TopologyError
from penstock.topology.operations import base as ops
from penstock.topology.operations.functions import MERGED, Function

__all__ = ["Fold", "aggregate_of", "initial"]


@dataclass(frozen=True, slots=True)
class Fold:
    """One call of ``count``, ``reduce`` or ``aggregate``.

    ``value_serde`` is the serde of the results, unless ``materialized`` has one.
    """

    aggregation: ops.Aggregation
    materialized: Materialized | None
    name: str | None
    value_serde: Any = UNKNOWN

    @property
    def verb(self) -> str:
        """The part of generated names: ``REDUCE``, or ``AGGREGATE`` for counts too."""
        return "REDUCE" if self.aggregation.kind == "reduce" else "AGGREGATE"

    @property
    def queryable(self) -> bool:
        """Whether the user named the store."""
        return self.materialized is not None and self.materialized.name is not None


def aggregate_of(
    initializer: object,
    aggregator: object,
    *,
    subtractor: object = None,
    merger: object = None,
    expression: bool = True,
) -> ops.Aggregation:
    """Make an aggregation of an initializer and functions of (key, value, aggregate); built-in ones start from None."""
    if aggregator is None:
        if not isinstance(initializer, BuiltInAggregator):
            if getattr(initializer, "__module__", None) == BuiltInAggregator.__module__ and callable(initializer):
                name = getattr(initializer, "__name__", "sum")
                raise TopologyError(
                    f"aggregate() got the function agg.{name} itself",
                    hint=f'Call it: agg.{name}("field"), or agg.{name}() for the value.',
                )
            raise TopologyError(
                "aggregate() takes an initializer and an aggregator; the aggregator is missing",
                hint='Write aggregate(0, lambda key, value, total: ...), or aggregate(agg.sum("field")).',
            )
        initializer, aggregator = None, initializer
    return ops.Aggregation(
        "aggregate",
        Function.wrap(aggregator, verb="aggregate", allowed=(3,), expression=expression and subtractor is None),
        initial(initializer),
        None if subtractor is None else _other(subtractor, "aggregate: subtractor", ""),
        None if merger is None else _other(merger, "aggregate: merger", MERGED),
    )


def _other(fn: object, verb: str, passed: str) -> Function:
    return Function.wrap(fn, verb=verb, allowed=(3,), passed=passed, expression=False)


@dataclass(frozen=True, slots=True)
class _Constant:
    value: Any

    def __call__(self) -> Any:
        return self.value


def _check_initializer(initializer: Callable[..., Any]) -> None:
    try:
        inspect.signature(initializer).bind()
    except ValueError:
        return  # a built-in, which does not say what it takes
    except TypeError as error:
        raise TopologyError(
            f"the initializer of aggregate() is called without arguments, but {initializer!r} requires some: {error}",
            hint="Write lambda: 0, or pass the constant itself.",
        ) from error


def initial(initializer: object) -> Callable[[], Any]:
    """Make an initializer of a callable without arguments, or of a constant that cannot be changed in place."""
    if callable(initializer):
        _check_initializer(initializer)
        return initializer
    if isinstance(initializer, list | dict | set | bytearray):
        raise TopologyError(
            f"aggregate() starts with the {type(initializer).__name__} {initializer!r}, which all keys would share",
            hint=f"Pass a function that makes a new one: {type(initializer).__name__}, or lambda: {initializer!r}.",
        )
    return _Constant(initializer)
