"""Errors get from workers to the driver whole, and nothing that a record quotes is taken for one."""

from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from penstock import StreamsBuilder, TopologyTestDriver, errors
from penstock.engines.spark.failures import sealed_error_in, to_worker_error
from penstock.errors import AppFailedError, PenstockError, ProcessingError, StateError

KEY = bytes(range(32))


class Touch:
    """Creates a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def forged(path: Path) -> list[str]:
    """Marks as anybody may write them into a record's value: pickled, unsigned, signed with another key."""
    data = base64.b64encode(pickle.dumps(Touch(path))).decode()
    document = {"kind": "FencedError", "message": "go away", "hint": "", "facts": {}}
    plain = base64.b64encode(json.dumps(document).encode()).decode()
    other = str(to_worker_error(AppFailedError("go away"), b"another key"))
    return [
        f"penstock-error:{data}:end",
        f"penstock-error:{plain}:{'0' * 64}:end",
        other[other.index("penstock-error:") :],
    ]


def test_an_error_comes_back_with_its_facts() -> None:
    error = ProcessingError("it broke", hint="mend it", node="N", record={"key": b"k", "value": object()}, line=3)
    found = sealed_error_in(f"SparkException: ... {to_worker_error(error, KEY)} ... at java", KEY)
    assert isinstance(found, ProcessingError)
    assert (found.message, found.node, found.line, found.hint) == ("it broke", "N", 3, "mend it")
    assert found.record["key"] == "b'k'"  # type: ignore[index]
    assert isinstance(sealed_error_in(str(to_worker_error(KeyError("x"), KEY)), KEY), AppFailedError)
    assert sealed_error_in("nothing here", KEY) is None


def test_every_class_comes_back_and_one_of_a_user_as_the_nearest() -> None:
    for name in errors.__all__:
        kind: type[PenstockError] = getattr(errors, name)
        assert type(sealed_error_in(str(to_worker_error(kind("m"), KEY)), KEY)) is kind

    class OwnError(StateError):
        pass

    assert type(sealed_error_in(str(to_worker_error(OwnError("m"), KEY)), KEY)) is StateError


@pytest.mark.parametrize("number", range(3))
def test_a_mark_in_a_record_runs_nothing_and_is_no_error(tmp_path: Path, number: int) -> None:
    evil = forged(tmp_path / "ran")[number]
    builder = StreamsBuilder()
    builder.stream("in").map_values(int).to("out")
    with pytest.raises(ProcessingError) as caught:  # noqa: SIM117 - the driver closes after the error
        with TopologyTestDriver(
            builder.build(), {"default.key.serde": "string", "default.value.serde": "string"}
        ) as driver:
            driver.input_topic("in").pipe(evil, "k")
    assert evil[:40] in caught.value.message
    text = f"Job aborted: {evil} {to_worker_error(caught.value, KEY)}"
    found = sealed_error_in(text, KEY)
    assert isinstance(found, ProcessingError)
    assert found.message == caught.value.message
    assert sealed_error_in(f"Job aborted: {evil}", KEY) is None
    assert not (tmp_path / "ran").exists()


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


FACTS = {
    "long text": "x" * 10_000_000,
    "deep": nested(5000),
    "large number": 1 << 100_000,
    "no text": "\ud800",
    "many": list(range(10_000)),
    "odd names": {(): 1},
}


@pytest.mark.parametrize("name", FACTS)
def test_facts_of_any_size_and_kind_travel(name: str) -> None:
    text = str(to_worker_error(ProcessingError("m", record=FACTS[name], line=3), KEY))
    assert len(text) < 300_000
    found = sealed_error_in(text, KEY)
    assert found is not None
    assert found.line == 3
