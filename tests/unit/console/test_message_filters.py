from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.console.filtering import Columns, candidates, matches, parse_filter
from penstock.errors import ConfigError
from penstock.log.base import RECORD_SCHEMA

MESSAGE: dict[str, Any] = {
    "key": "u17", "value": {"total": 120.5, "items": [{"name": "tea"}, {"name": "mate"}], "paid": True, "note": None},
    "headers": [("trace", b"a1"), ("empty", None)], "timestamp": 1_000, "partition": 3, "offset": 42,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("value.total > 100", True),
        ('value.total > 100 and key ~ "u1"', True),
        ("value.total <= 100 or offset = 42", True),
        ("not value.total > 100", False),
        ('value.items[0].name in ("tea", "coffee")', True),
        ('value.items[5].name = "tea"', False),
        ("has value.note", False),
        ("value.note = null", True),
        ("has value.nothing or value.nothing = null", False),
        ("value.paid = true and value.paid != 1", True),
        ("header.trace", True),
        ('header.trace = "a1" and not has header.empty', True),
        ('value ~ "mate" and key !~ "x"', True),
        ('value.total > "100"', False),
        ("(partition = 1 or partition = 3) and timestamp >= 1000", True),
        ('value."items"[1].name = "ma\\te"', False),
    ],
)
def test_a_filter_says_which_messages_meet_it(text: str, expected: bool) -> None:
    assert matches(parse_filter(text), MESSAGE) is expected


@pytest.mark.parametrize(
    ("value", "text", "expected"),
    [
        ('{"id": 202201180000000014}', "value.id = 202201180000000014", True),
        ('{"id": 202201180000000014}', "value.id = 202201180000000015", False),
        (b' [{"id": 1}]', "value[0].id = 1", True),
        ('{"a": {"b": "\\u00e4"}}', 'value.a.b = "\u00e4"', True),
        ('{"a": 1}', "has value.a and not has value.b", True),
        ("plain", "has value.a", False),
        ('{"a": 1', "has value.a", False),
        ("[" * 100_000, "has value[0]", False),
        ('"{\\"a\\": 1}"', "has value.a", False),
    ],
)
def test_fields_are_found_in_texts_of_json_too(value: Any, text: str, expected: bool) -> None:
    assert matches(parse_filter(text), {**MESSAGE, "value": value}) is expected
    data = value if isinstance(value, bytes) else value.encode()
    rows = [{"offset": 0, "timestamp": 0, "value": data}]
    columns = Columns(pa.RecordBatch.from_pylist(rows, RECORD_SCHEMA), 0, ("string", "string"))
    assert not expected or candidates(parse_filter(text), columns).tolist() == [True]


@pytest.mark.parametrize(
    "text",
    ["", "value.total >", "total > 1", "value.total > 1 1", "value..a = 1", "(key = 1", "key = __import__", "value[-1] = 2",
     "key ; key", 'key = "open', "(" * 200 + "key" + ")" * 200, "key = 1 " * 1000, "has", "key in 3", "key in ()"],
)  # fmt: skip
def test_what_is_no_filter_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_filter(text)
    assert refused.value.hint


@given(st.text(max_size=60) | st.text(alphabet='keyvalu.[]()<>=!~ "0123456789andorit', max_size=60))
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    try:
        wanted = parse_filter(text)
    except ConfigError:
        return
    assert matches(wanted, MESSAGE) in (True, False)
