"""The partitioners that a case can ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import functions as fns
from inputs import header_rows
from java_errors import java_error
from things import Spec, plain

__all__ = ["partitioner"]


def partitioner(n: Spec, side: list[Spec]) -> Callable[..., Any] | None:
    """The partitioner of an operator, which notes what it is asked."""
    if "partitioner" not in n:
        return None
    spec = n["partitioner"]
    at = fns.predicate(spec["at"]) if "at" in spec else None

    def answer(note: Spec, key: Any, value: Any) -> Any:
        side.append({"topic": f"@partitioner:{n['id']}", **note, "key": plain(key), "value": plain(value)})
        if at is not None and not at(key, value):
            return None
        match spec["answer"]:
            case "none":
                return None
            case "zero":
                return [0]
            case "one":
                return [1]
            case "drop":
                return []
            case _:
                raise java_error("java.lang.IllegalStateException", "boom partitioner")

    if spec.get("old"):
        return lambda topic, key, value, partitions: answer({"to": topic, "partitions": partitions}, key, value)
    return lambda topic, key, value, headers, partitions: answer(
        {"to": topic, "headers": header_rows(headers), "partitions": partitions}, key, value
    )
