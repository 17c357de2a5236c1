"""A search decodes the records alone whose bytes may meet its filter, and finds all that meet it."""

import json
import random

import numpy as np
import pyarrow as pa
import pytest

from penstock.console.filtering import Columns, Selection, candidates, parse_filter
from penstock.console.messages import MessageQuery, read_messages
from penstock.log.base import RECORD_SCHEMA
from penstock.log.open import open_log

FILTERS = [
    'value.user = "ann"', 'value.user ~ "nn"', 'value.user in ("ann", "Zoë")', "value.total > 100", "value.total >= 100",
    "value.total < -3", "value.total <= 2.5", "value.total = 100", "value.total = 12345678901234567", 'key = "k7"',
    'key ~ "7"', "has value.user", "not has value.user", 'value ~ "1"', 'value ~ "1e5"', 'value ~ "ann"', "value.a.b > 1",
    "value.list[1] > 3", 'value.list[0].user = "ann"', "offset >= 40 and offset < 60", "partition = 3", "timestamp in (5, 6)",
    'value.user = "ann" and value.total > 100', 'value.user = "ann" or offset = 3', 'not value.user = "ann"',
    'value.user != "ann"', 'value.user !~ "n"', "value.user = null", "value.flag = true", 'value.user = "a\\"b"',
    'value.user = ""', 'value ~ ", "', 'value ~ "user\\": "', 'header.h = "x"', 'value.user > "a"', 'key = "absent"',
    'value ~ "null"', "value.total in (100, 7)", "value > 5", 'value = "text"', "not (value.total > 100 or has header.h)",
]  # fmt: skip


def texts(source):
    user = source.choice(["ann", "bob", 'a"b', "Zoë", "", "nnn", None, 7])
    total = source.choice([100, 100.0, 1e2, -4, 2.5, 12345678901234567, 0, True, None, "100", float("inf")])
    document = {"user": user, "total": total, "flag": source.random() < 0.5, "list": [{"user": user}, total]}
    if source.random() < 0.3:
        document["a"] = {"b": source.randint(0, 3), "total": 500}
    if source.random() < 0.2:
        del document["user"]
    separators = source.choice([(",", ":"), (", ", ": "), (" , ", " : ")])
    text = json.dumps(document, ensure_ascii=source.random() < 0.5, separators=separators)
    if source.random() < 0.1:
        text = text.replace("100,", "1e2,").replace("ann", "\\u0061nn")
    if source.random() < 0.1:
        text = text[:-1] + ', "total": 101}'  # the last one counts
    return source.choice([text.encode()] * 8 + [b"7", b'"text"', b"[1, 2]", None, b"null"])


def records(count, seed):
    source = random.Random(seed)
    rows = [
        {"offset": n, "timestamp": n % 9, "key": source.choice([b"k7", b"k17", "Zoë".encode(), None]), "value": texts(source),
         "headers": [{"key": "h", "value": b"x"}] if source.random() < 0.1 else None}
        for n in range(count)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


def decoded(record, partition):
    value = record["value"]
    return {
        **record, "partition": partition, "key": None if record["key"] is None else record["key"].decode(),
        "value": None if value is None else json.loads(value),
        "headers": [(each["key"], each["value"]) for each in record["headers"] or ()],
    }  # fmt: skip


@pytest.mark.parametrize("text", FILTERS)
def test_every_record_that_meets_a_filter_is_a_candidate(text):
    found = records(600, 16)
    may = candidates(parse_filter(text), Columns(found, 3, ("string", "json")))
    holds = np.array([Selection.of(text).holds(decoded(record, 3)) for record in found.to_pylist()])
    assert holds[~may].sum() == 0


@pytest.mark.parametrize(
    ("text", "most"),
    [('value.user = "Zoë"', 0.6), ('key = "absent"', 0.3), ("value.total > 100", 0.8), ("offset = 3", 0.01),
     ('value.user = "ann" and offset < 60', 0.1), ('value.user = "nobody" or key = "none"', 0.6)],
)  # fmt: skip
def test_most_other_records_are_left_out(text, most):
    may = candidates(parse_filter(text), Columns(records(600, 16), 3, ("string", "json")))
    assert may.mean() <= most


def test_hidden_fields_and_other_formats_are_left_to_the_filter():
    found = records(50, 1)
    wanted = parse_filter('value.user = "nobody"')
    assert candidates(wanted, Columns(found, 0, ("string", "json"), {"value"})).all()
    assert candidates(wanted, Columns(found, 0, ("string", "avro"))).all()


def test_bytes_that_are_no_text_do_not_end_a_search():
    rows = [{"offset": 0, "timestamp": 0, "value": b"\xff\xfe"}, {"offset": 1, "timestamp": 0, "value": b'{"total":7}'}]
    found = pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)
    may = candidates(parse_filter("value.total > 5"), Columns(found, 0, ("string", "json")))
    assert may.tolist()[1]


@pytest.mark.parametrize("start", ["newest", "oldest"])
def test_a_search_over_many_records_finds_the_few_wanted_ones_at_once(tmp_path, start):
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as log:
        log.create_topic("orders", 2)
        for partition in range(2):
            rows = [
                {"offset": n, "timestamp": n, "key": b"k", "value": b'{"user": "u%d", "total": %d}' % (n, n)}
                for n in range(60_000)
            ]
            log.append("orders", partition, pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA))
        query = MessageQuery("orders", start, wanted='value.user = "u31234"', value_format="json")
        found = read_messages(log, query)
        while not found.rows and found.cursor:
            found = read_messages(
                log, MessageQuery("orders", start, wanted=query.wanted, value_format="json", cursor=found.cursor)
            )
        whole = list(found.rows)
        while found.cursor:
            found = read_messages(
                log, MessageQuery("orders", start, wanted=query.wanted, value_format="json", cursor=found.cursor)
            )
            whole += found.rows
    assert [(row["partition"], row["offset"]) for row in sorted(whole, key=lambda row: row["partition"])] == [
        (0, 31234),
        (1, 31234),
    ]
    assert found.searched == found.total == 120_000
