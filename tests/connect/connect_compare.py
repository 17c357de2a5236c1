"""How a runner compares: `differences(expected, actual)` gives one line per difference, none when they agree (format.md)."""

from __future__ import annotations

import json
import math
import re

__all__ = ["differences", "loose", "same_record", "same_value", "substitute"]


def substitute(value, variables):
    """%NAME% -> its value, in strings, in keys and values of objects, in lists."""
    if isinstance(value, str):
        for name, text in variables.items():
            value = value.replace(f"%{name}%", text)
        return value
    if isinstance(value, dict):
        return {substitute(k, variables): substitute(v, variables) for k, v in value.items()}
    if isinstance(value, list):
        return [substitute(v, variables) for v in value]
    return value


def differences(expected, actual, *, ignore=(), unordered=(), path=""):
    """For REST bodies, topics and the like. `unordered` are JSON pointers of arrays whose order does not matter."""
    if isinstance(expected, dict) and len(expected) == 1 and next(iter(expected)).startswith("$"):
        tag, want = next(iter(expected.items()))
        if tag == "$any":
            return [] if actual is not None else [f"{path}: something expected, got null"]
        if tag == "$int":
            return (
                []
                if isinstance(actual, int) and not isinstance(actual, bool)
                else [f"{path}: an integer expected, got {actual!r}"]
            )
        if tag == "$trace":  # a stack trace: a text that has the message of its first line; classes may be others
            first = (want[0]["message"] or "") if want else ""
            return (
                []
                if isinstance(actual, str) and first.split("\n")[0] in actual
                else [f"{path}: a trace with {first!r} expected, got {str(actual)[:200]!r}"]
            )
        return [f"{path}: unknown matcher {tag}"]
    if isinstance(expected, dict):
        if not isinstance(actual, dict):
            return [f"{path}: {expected!r} expected, got {actual!r}"]
        found = []
        for key in sorted({*expected, *actual} - set(ignore)):
            at = f"{path}/{key}"
            if key not in actual:
                found.append(f"{at}: missing, {expected[key]!r} expected")
            elif key not in expected:
                found.append(f"{at}: not expected: {actual[key]!r}")
            else:
                found += differences(expected[key], actual[key], ignore=ignore, unordered=unordered, path=at)
        return found
    if isinstance(expected, list):
        if not isinstance(actual, list) or len(expected) != len(actual):
            return [
                f"{path}: {len(expected)} elements expected, got {len(actual) if isinstance(actual, list) else actual!r}"
            ]
        if path in unordered:
            left, found = list(actual), []
            for i, want in enumerate(expected):
                hit = next(
                    (
                        j
                        for j, x in enumerate(left)
                        if not differences(want, x, ignore=ignore, unordered=unordered, path=f"{path}/{i}")
                    ),
                    None,
                )
                if hit is None:
                    found.append(f"{path}: no element like {json.dumps(want, ensure_ascii=False)[:300]}")
                else:
                    left.pop(hit)
            return found
        return [
            x
            for i, (e, a) in enumerate(zip(expected, actual, strict=True))
            for x in differences(e, a, ignore=ignore, unordered=unordered, path=f"{path}/{i}")
        ]
    if isinstance(expected, str) and isinstance(actual, str) and "%VERSION%" in expected and expected != actual:
        pattern = re.escape(expected).replace("%VERSION%", r"\d+(\.\w+)+[\w.+-]*")
        return [] if re.fullmatch(pattern, actual, re.DOTALL) else [f"{path}: {expected!r} expected, got {actual!r}"]
    if isinstance(expected, bool) != isinstance(actual, bool) or expected != actual:
        return [f"{path}: {expected!r} expected, got {actual!r}"]
    return []


NUMBERS = {"$int8", "$int16", "$int32", "$int64", "$float32", "$float64", "$bigint"}


def plain(value, *, strict=False):
    """A value of a case without the tags that name Java's number types (they stay with `strict`)."""
    if isinstance(value, dict):
        if len(value) == 1 and (tag := next(iter(value))) in NUMBERS and not strict:
            x = value[tag]
            return float(x) if tag in ("$float32", "$float64") else int(x)
        return {k: plain(v, strict=strict) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v, strict=strict) for v in value]
    return value


def same_value(a, b, *, strict=False):
    a, b = plain(a, strict=strict), plain(b, strict=strict)
    if isinstance(a, float) or isinstance(b, float):
        try:
            x, y = float(a), float(b)
        except (TypeError, ValueError):
            return False
        return (math.isnan(x) and math.isnan(y)) or x == y or math.isclose(x, y, rel_tol=1e-6)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_value(a[k], b[k], strict=strict) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        if any_order(a) and any_order(b) and len(a) == len(b):
            left = list(b)
            for pair in a:
                at = next((i for i, other in enumerate(left) if same_value(pair, other, strict=strict)), None)
                if at is None:
                    return False
                left.pop(at)
            return True
        return same_list(a, b, strict)
    return type(a) is type(b) and a == b


def any_order(value):
    """Pairs of a map whose keys are not all texts: Java's maps have their own order."""
    return all(isinstance(pair, list) and len(pair) == 2 for pair in value)


def same_list(a, b, strict):
    return len(a) == len(b) and all(same_value(x, y, strict=strict) for x, y in zip(a, b, strict=True))


def same_record(a, b, *, strict=False):
    """Two records of transform cases; None is a dropped one."""
    if a is None or b is None:
        return a is b
    return all(same_value(a.get(k), b.get(k), strict=strict) for k in {*a, *b})


LOOSE = (
    "com.fasterxml",
    "Unrecognized field",
    "Cannot deserialize",
    "Cannot construct",
    "No content to map",
    "Unexpected character",
    "Unexpected end-of-input",
    "Cannot invoke",
    "java.",
    "Source: ",
    "PluginDesc{",
    "Connector config {",
    "No enum constant",
    'because "',
    "Invalid format",
    "Cannot coerce",
)


def loose(step):
    """Bodies whose message is Java's or Jackson's own text: status and error_code count, the message does not."""
    body = step.get("response", {}).get("body")
    return (
        isinstance(body, dict)
        and set(body) == {"error_code", "message"}
        and isinstance(body["message"], str)
        and any(x in body["message"] for x in LOOSE)
    )
