"""Types as serdes: dataclasses and pydantic's models, and what is made of them."""

from __future__ import annotations

import collections
import dataclasses
import enum
import json
import pickle
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, Required, TypedDict, TypeVar

import cloudpickle
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, RootModel, field_validator

from examples import examples
from penstock import Consumed, Grouped, Materialized, Produced, Serdes, StreamsBuilder
from penstock.errors import ConfigError, PenstockError, SerializationError
from penstock.serde import Column
from penstock.serde.models import compiled
from penstock.sql import columns_of
from penstock.testing import EmbeddedRegistry, TopologyTestDriver
from penstock.topology.plan.plan import plan_of
from penstock.topology.plan.plan_json import document_of

T = TypeVar("T")


class Kind(enum.Enum):
    NEW = "new"
    OLD = 2


@dataclass
class Line:
    item: str
    price: Decimal
    count: int = 1


@dataclass
class Place:
    city: str


class Extra(TypedDict):
    a: Required[int]
    b: NotRequired[str]


@dataclass
class Box(Generic[T]):
    inside: T


@dataclass(frozen=True)
class Everything:
    id: uuid.UUID
    at: datetime
    day: date
    hour: time
    wait: timedelta
    raw: bytes
    kind: Kind
    way: Literal["in", "out"]
    lines: list[Line]
    pair: tuple[int, str]
    many: tuple[int, ...]
    names: set[str]
    by_number: dict[int, Place]
    either: Line | Place
    number: float | int
    extra: Extra
    box: Box[Place]
    whatever: Any
    maybe: Place | None
    share: float = 0.5
    user: int = field(default=0, metadata={"name": "userId"})
    made: str = field(init=False, default="x")


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)


@dataclass
class Checked:
    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low is above high")


class Model(BaseModel):
    user: str
    amount: Decimal = Field(gt=0)
    at: datetime | None = None
    lines: list[Line] = []
    page: str = Field(default="", alias="pageName")


EVERYTHING = Everything(
    id=uuid.UUID(int=5),
    at=datetime(2024, 5, 1, 12, 30, tzinfo=UTC),
    day=date(2024, 5, 1),
    hour=time(12, 30, 1),
    wait=timedelta(days=1, hours=2, microseconds=50),
    raw=b"\x00\xff",
    kind=Kind.OLD,
    way="out",
    lines=[Line("lamp", Decimal("1.10")), Line("book", Decimal("12345678901234567890.123"), 2)],
    pair=(1, "x"),
    many=(1, 2, 3),
    names={"b", "a"},
    by_number={7: Place("Ulm")},
    either=Place("Rome"),
    number=1,
    extra={"a": 1},
    box=Box(Place("Oslo")),
    whatever={"deep": [1, None]},
    maybe=None,
)
ROWS = [Line("a", Decimal("1.5")), Line("b", Decimal(2), 3), None, Line("c", Decimal(0))]


def test_every_type_of_field_comes_back_as_it_went():
    serde = Serdes.of(Everything)
    data = serde.serialize(EVERYTHING)
    assert serde.deserialize(data) == EVERYTHING
    document = json.loads(data)
    assert document["at"] == "2024-05-01T12:30:00+00:00"
    assert document["wait"] == "P1DT7200.00005S"
    assert document["userId"] == 0
    assert document["kind"] == 2
    assert document["names"] == ["a", "b"]
    assert document["lines"][1] == {"item": "book", "price": "12345678901234567890.123", "count": 2}
    assert type(serde.deserialize(data).number) is int
    assert serde.name == "model<Everything>"
    assert serde.serialize(None) is None
    assert serde.deserialize(b"null") is None


def test_numbers_are_exact_and_missing_fields_get_their_defaults():
    assert Serdes.of(Line).deserialize(b' {"item": "a", "price": 0.1, "more": [1]} \n') == Line("a", Decimal("0.1"))
    assert Serdes.of(Line).deserialize(b'{"item":"a","price":"1e3","count":2.0}') == Line("a", Decimal("1e3"), 2)
    assert Serdes.of(Line | Place).deserialize(b'{"city":"Ulm"}') == Place("Ulm")
    assert Serdes.of(list[Line]).deserialize(b'[{"item":"a","price":1}]') == [Line("a", Decimal(1))]
    assert Serdes.of(Place | None).serialize(Place("x")) == b'{"city":"x"}'
    tree = Tree("a", [Tree("b", [Tree("c")]), Tree("d")])
    assert Serdes.of(Tree).deserialize(Serdes.of(Tree).serialize(tree)) == tree
    assert Serdes.of(Extra).serialize({"a": 1}) == b'{"a":1}'


BAD = [
    (Line, b"{}", "item", "field 'item' is missing"),
    (Line, b'{"item":"a","price":true}', "price", "field 'price' is bool True, not a decimal number"),
    (Line, b'{"item":"a","price":1,"count":1.5}', "count", "field 'count' is Decimal Decimal('1.5'), not an integer"),
    (Line, b'{"item":"a","price":1,"count":null}', "count", "is NoneType None"),
    (Line, b"[]", "", "an object with the fields of Line"),
    (Line, b"{", None, "read from JSON"),
    (Line, b'{"item":"a","price":1}{}', None, "one JSON value"),
    (Line, b"\xff", None, "read from JSON"),
    (Line, b"[" * 100_000, None, "levels"),
    (list[Line], b'[{"item":"a","price":1},{"item":3,"price":1}]', "[1].item", "not text"),
    (dict[int, Place], b'{"1":{"city":1}}', "['1'].city", "not text"),
    (Tree, b'{"name":"a","children":[{"name":"b","children":[{}]}]}', "children[0].children[0].name", "missing"),
    (Checked, b'{"low":2,"high":1}', "", "low is above high"),
    (Model, b'{"user":"a","amount":-1}', "amount", "greater than 0"),
    (Model, b'{"user":"a","amount":1,"lines":[{"item":"a","price":"x"}]}', "lines[0].price", "decimal"),
    (Model, b"{", "", "JSON"),
]


@pytest.mark.parametrize(("kind", "data", "path", "said"), BAD)
def test_bytes_that_do_not_fit_name_the_field(kind, data, path, said):
    with pytest.raises(SerializationError) as caught:
        Serdes.of(kind).deserialize(data)
    assert caught.value.facts.get("field") == path
    assert said in str(caught.value)


@dataclass
class Numbers:
    count: int
    share: float = 0.0
    price: Decimal = Decimal(0)
    any: Any = None


class Rate(enum.Enum):
    LOW = 0.5


@dataclass
class Rated:
    rate: Rate
    price: Decimal


class Point(NamedTuple):
    x: int


class Span(enum.Enum):
    DAY = (0, 24)


@dataclass
class Linked(Generic[T]):
    value: T
    next: Linked[T] | None = None


@dataclass
class Pair(Generic[T]):
    left: Box[T]
    right: Box[list[T]]


class Picky(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def known(cls, number: int) -> int:
        return {1: 1}[number]


class Hidden(BaseModel):
    n: int
    secret: int = Field(default=1, exclude=True)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (Numbers, b'{"count":1e99999999}'),
        (Numbers, b'{"count":NaN}'),
        (Numbers, b'{"count":1,"price":1e9999999999999999999999}'),
        (Numbers, b'{"count":1,"price":"1e9999999999999999999999"}'),
        (Numbers, b'{"count":1,"share":1%s}' % (b"0" * 400)),
        (list[int], b"[%s]" % (b"1" * 5000)),
        (set[Place], b'[{"city":"a"}]'),
        (dict[bool, int], b'{"yes":1}'),
        (dict[float, int], b'{"x":1}'),
        (Picky, b'{"n":2}'),
    ],
)
def test_no_bytes_raise_another_error(kind, data):
    """A handler of errors decides about records that do not decode, but about no others."""
    with pytest.raises(SerializationError):
        Serdes.of(kind).deserialize(data)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Numbers, Numbers(10**30)),
        (Numbers, Numbers(1, any=[0.5, {"x": 1.5}])),
        (Rated, Rated(Rate.LOW, Decimal("0.1"))),
        (dict[bool, int], {True: 1, False: 2}),
        (dict[float, int], {1.5: 1, float("1e300"): 2}),
        (dict[Kind, int], {Kind.NEW: 1, Kind.OLD: 2}),
        (dict[Literal[1, 2], str], {2: "b"}),
        (Linked[int], Linked(1, Linked(2))),
        (Pair[str], Pair(Box("a"), Box(["b"]))),
        (Annotated[list[int], {"unhashable": 1}], [1]),
        (list[Annotated[int, {"unhashable": 1}]], [1]),
        (RootModel[list[int]], RootModel[list[int]]([1, 2])),
    ],
)
def test_values_come_back_with_their_types(kind, value):
    serde = Serdes.of(kind)
    back = serde.deserialize(serde.serialize(value))
    assert (back, repr(back)) == (value, repr(value))


def test_a_number_that_is_an_integer_in_another_spelling_is_one():
    assert Serdes.of(Numbers).deserialize(b'{"count":1e30}') == Numbers(10**30)


@pytest.mark.parametrize("value", [Numbers(10**5000), Numbers(1, 10**400), Numbers(1, float("nan"))])
def test_numbers_that_json_lacks_are_refused_by_name(value):
    with pytest.raises(SerializationError, match="no Numbers"):
        Serdes.of(Numbers).serialize(value)


def test_the_order_of_a_union_counts_whatever_was_asked_for_before():
    text, day = Serdes.of(str | date), Serdes.of(date | str)
    assert (text.deserialize(b'"2024-05-01"'), day.deserialize(b'"2024-05-01"')) == ("2024-05-01", date(2024, 5, 1))
    assert text != day


def test_equal_sets_have_equal_bytes():
    serde = Serdes.of(set[float])
    assert serde.serialize({2, 10, 1.0}) == serde.serialize({10.0, 1, 2.0})


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (list[Point], "no JSON form"),
        (list[collections.OrderedDict], "no JSON form"),
        (list[collections.Counter[str]], "no JSON form"),
        (Span, "whose values are not all"),
        (dict[tuple[int, int], str], r"whose keys are tuple\[int,int\]"),
        (dict[str | None, str], r"whose keys are str\|None"),
        (dict[Place, str], "whose keys are Place"),
    ],
)
def test_types_that_would_not_come_back_are_refused(kind, said):
    with pytest.raises(ConfigError, match=said):
        Serdes.of(kind)


def test_pydantic_models_as_columns_have_the_fields_that_are_written():
    serde = Serdes.of(Hidden)
    assert serde.decode(serde.encode(Column.of_items([Hidden(n=1)]))).series().to_list() == [{"n": 1}]
    assert Column.of_items([RootModel[list[int]]([1])]).series().to_list() == [[1]]


def test_values_that_do_not_fit_are_serialization_errors_under_a_checked_schema_too():
    for kind in (Line, Model):
        with EmbeddedRegistry() as registry:
            strict = {"url": registry.url, "json.fail.invalid.schema": True}
            serde = Serdes.json_schema(kind, registry=strict).for_topic("lines", "value")
            with pytest.raises(SerializationError, match=f"is no {kind.__name__}"):
                serde.serialize(3)


def test_values_of_other_types_are_refused_before_they_are_written():
    with pytest.raises(SerializationError, match="3 is no Line: it is int 3, not Line"):
        Serdes.of(Line).serialize(3)
    with pytest.raises(SerializationError, match="field 'item' is int 3, not text"):
        Serdes.of(Line).serialize(Line(3, Decimal(1)))
    with pytest.raises(SerializationError, match="is no Model"):
        Serdes.of(Model).serialize(Line("a", Decimal(1)))
    wrong = Model(user="a", amount=Decimal(1))
    wrong.lines = 5
    with pytest.raises(SerializationError, match="is no Model"):
        Serdes.of(Model).serialize(wrong)


def test_models_of_pydantic_are_read_and_written_by_pydantic():
    serde = Serdes.of(Model)
    value = Model(user="ann", amount=Decimal("1.10"), pageName="home", lines=[Line("a", Decimal(1))])
    data = serde.serialize(value)
    assert json.loads(data)["pageName"] == "home"
    assert serde.deserialize(data) == value
    assert serde.deserialize(b'{"user":"a","amount":"2","unknown":1}') == Model(user="a", amount=Decimal(2))
    assert Serdes.of(list[Model]).deserialize(b"[%s]" % data) == [value]
    assert Serdes.of(Model | Place).deserialize(b'{"city":"x"}') == Place("x")


def test_types_without_a_form_are_refused_when_the_topology_is_built():
    @dataclass
    class Holds:
        lock: threading.Lock  # noqa: F821

    with pytest.raises(ConfigError, match="annotations of Holds cannot be resolved"):
        Consumed(value_serde=Holds)
    odd = dataclasses.make_dataclass("Odd", [("fine", int), ("complex", complex)])
    with pytest.raises(ConfigError, match=r"Odd\.complex has the type <class 'complex'>, which has no JSON form"):
        Serdes.of(odd)
    with pytest.raises(ConfigError, match="InitVar"):
        Serdes.of(dataclasses.make_dataclass("Init", [("x", dataclasses.InitVar[int])]))
    with pytest.raises(PenstockError, match="is not a serde"):
        Consumed(value_serde=complex)


def test_serdes_of_equal_types_are_equal_and_pickle():
    assert Serdes.of(Line) == Serdes.of(Line) != Serdes.of(Place)
    for kind in (Line, Model, Tree, Line | None, list[Line], Box[Place]):
        serde = Serdes.of(kind)
        for copy in (pickle.loads(pickle.dumps(serde)), cloudpickle.loads(cloudpickle.dumps(serde))):
            assert copy == serde
            assert hash(copy) == hash(serde)
    assert Serdes.of("model<Line>") == Serdes.json()  # whoever has no such class reads it as JSON
    assert pickle.loads(pickle.dumps(Serdes.of(Line))).deserialize(b'{"item":"a","price":0.1}').price == Decimal("0.1")


def test_classes_of_a_script_go_to_other_processes(tmp_path):
    """Their annotations cannot be resolved there, and what dataclasses know of defaults is no longer the same object."""
    script = tmp_path / "script.py"
    script.write_text(
        "from __future__ import annotations\n"
        "import sys, cloudpickle\n"
        "from dataclasses import dataclass, field\n"
        "from penstock import Serdes\n"
        "@dataclass\nclass Inner:\n    n: int = 3\n"
        "@dataclass\nclass Outer:\n    inner: Inner\n    more: list[Inner] = field(default_factory=list)\n"
        "sys.stdout.buffer.write(cloudpickle.dumps(Serdes.of(Outer)))\n"
    )
    sent = subprocess.run([sys.executable, script], capture_output=True, check=True, timeout=120).stdout
    serde = pickle.loads(sent)
    value = serde.deserialize(b'{"inner":{}}')
    assert (value.inner.n, value.more) == (3, [])
    assert serde.serialize(value) == b'{"inner":{"n":3},"more":[]}'


def test_columns_are_objects_until_an_expression_asks_for_fields():
    serde = Serdes.of(Line)
    column = serde.decode(serde.encode(Column.of_items(ROWS)))
    assert column.items() == ROWS
    assert not column.is_columnar
    assert column.series().to_list()[1] == {"item": "b", "price": "2", "count": 3}
    assert column.series().dtype == compiled(Line).column_type
    assert serde.decode(pa.array([], pa.large_binary())).series().dtype == compiled(Line).column_type
    with pytest.raises(SerializationError, match="row 1"):
        serde.decode(pa.array([b'{"item":"a","price":1}', b"{}"], pa.large_binary()))


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_a_topology_over_types(batch_size):
    builder = StreamsBuilder()
    lines = builder.stream("lines", Consumed(key_serde=str, value_serde=Line))
    many = lines.filter(pl.col("count") >= 2).map_values(lambda line: dataclasses.replace(line, count=line.count * 2))
    many.filter(pl.col("item") != "x").to("many", Produced(key_serde=str, value_serde=Line))
    lines.filter(pl.col("item").is_not_null()).map_values(pl.struct(pl.col("item").alias("city"))).to(
        "places", Produced(key_serde=str, value_serde=Place)
    )
    sums = lines.group_by(lambda line: line and line.item, Grouped(key_serde=str, value_serde=Line)).reduce(
        lambda old, new: Line(old.item, old.price + new.price, old.count + new.count),
        Materialized("sums", value_serde=Line),
    )
    sums.to_stream().to("sums", Produced(key_serde=str, value_serde=Line))
    config = {"statestore.cache.max.bytes": 0}
    with TopologyTestDriver(builder.build(), config, batch_size=batch_size) as driver:
        lines_in = driver.input_topic("lines")
        for number in range(7):
            lines_in.pipe(Line("ab"[number % 2], Decimal("0.1"), number), "k")
        lines_in.pipe(None, "k")
        driver.flush()
        assert [value.count for value in driver.output_topic("many").read_values_to_list()] == [4, 6, 8, 10, 12]
        assert driver.output_topic("places").read_values_to_list()[:2] == [Place("a"), Place("b")]
        assert driver.output_topic("sums").read_values_to_list()[-1] == Line("a", Decimal("0.4"), 12)
        assert driver.store("sums").get("b").value == Line("b", Decimal("0.3"), 9)


def test_a_misspelled_field_is_refused_when_the_topology_is_built():
    builder = StreamsBuilder()
    lines = builder.stream("lines", Consumed(key_serde=str, value_serde=Line))
    lines.filter(pl.col("cuont") > 1).to("out", Produced(key_serde=str, value_serde=Line))
    with pytest.raises(PenstockError, match="cuont"):
        TopologyTestDriver(builder.build()).close()


def test_a_record_that_does_not_fit_goes_to_the_handler_with_its_place_and_field():
    builder = StreamsBuilder()
    builder.stream("lines", Consumed(key_serde=str, value_serde=Line)).to("out", Produced(value_serde=Line))
    bad, good = b'{"item":"a","price":"much"}', b'{"item":"a","price":1}'
    config = {"default.key.serde": "string"}
    with TopologyTestDriver(builder.build(), config) as driver:
        driver.pipe_raw("lines", b"k", good, 0, ())
        with pytest.raises(
            SerializationError, match=r"lines-0 offset 1 .*no Line: field 'price' is str 'much'"
        ) as caught:
            driver.pipe_raw("lines", b"k", bad, 0, ())
        assert (caught.value.facts["offset"], caught.value.facts["field"]) == (1, "price")
    config |= {"deserialization.exception.handler": "continue", "errors.dead.letter.queue.topic.name": "dead"}
    with TopologyTestDriver(builder.build(), config) as driver:
        driver.pipe_raw("lines", b"k", bad, 0, ())
        driver.pipe_raw("lines", b"k", good, 0, ())
        letter = driver.read_raw("dead")
        assert letter.value == bad
        assert b"field 'price' is str 'much'" in dict(letter.headers)["__streams.errors.message"]
        assert driver.output_topic("out").read_values_to_list() == [Line("a", Decimal(1))]


def test_types_as_defaults_and_in_the_stored_plan():
    builder = StreamsBuilder()
    builder.stream("lines").group_by_key().reduce(lambda _, new: new, Materialized("newest"))
    config = {"default.key.serde": str, "default.value.serde": Line}
    with TopologyTestDriver(builder.build(), config) as driver:
        driver.input_topic("lines").pipe(ROWS[0], "k")
        assert driver.store("newest").get("k").value == ROWS[0]
    builder = StreamsBuilder()
    builder.table("lines", Consumed(key_serde=str, value_serde=Line), Materialized("kept"))
    topology = builder.build()
    assert "model<Line>" in str(document_of(plan_of(topology, "app", {"lines": 1}), topology, {}))


@pytest.mark.parametrize("kind", [Line, Model])
def test_the_registry_gets_the_schema_of_a_type(kind):
    value = Line("a", Decimal("1.5")) if kind is Line else Model(user="a", amount=Decimal(1))
    with EmbeddedRegistry() as registry:
        strict = {"url": registry.url, "json.fail.invalid.schema": True}
        serde = Serdes.json_schema(kind, registry=strict).for_topic("lines", "value")
        data = serde.serialize(value)
        assert serde.deserialize(data) == value
        assert serde.decode(serde.encode(Column.of_items([value, None]))).items() == [value, None]
        schema = json.loads(registry.registry.version("lines-value", 1).schema.text)
        assert schema["title"] == kind.__name__
        assert schema["additionalProperties"] is False
        plain = Serdes.json_schema(registry=registry.url)
        assert isinstance(plain.deserialize(data), dict)
        assert serde.name == f"json_schema<{kind.__name__}>"
        # A field with a default may be added: the registry takes the new schema as compatible.
        if kind is Line:
            fields = [("item", str), ("price", Decimal), ("count", int, 1), ("note", str, "")]
            wider = dataclasses.make_dataclass("Line", fields)
            new = Serdes.json_schema(wider, registry=registry.url).for_topic("lines", "value")
            assert new.deserialize(data).note == ""
            new.serialize(wider("a", Decimal(1)))


def test_sql_has_the_columns_of_a_type():
    assert columns_of(Line) == "`ITEM` STRING, `PRICE` STRING, `COUNT` BIGINT"
    assert columns_of(Model).startswith("`USER` STRING, `AMOUNT`")
    builder = StreamsBuilder()
    builder.stream("raw", Consumed(key_serde=str, value_serde=Line)).to("lines", Produced(value_serde=Line))
    selected = builder.sql(
        "CREATE STREAM lines (k STRING KEY) WITH (kafka_topic='lines', value_format='JSON');"
        "SELECT k, item, `COUNT` * 2 AS twice FROM lines WHERE CAST(price AS DECIMAL(9, 2)) > 1;"
    )
    selected.to("twice", Produced(key_serde=str, value_serde=dict))
    with TopologyTestDriver(builder.build(), {"default.key.serde": "string"}) as driver:
        driver.input_topic("raw").pipe(Line("a", Decimal("1.5"), 4), "k")
        driver.input_topic("raw").pipe(Line("b", Decimal("0.5"), 4), "k")
        assert driver.output_topic("twice").read_values_to_list() == [{"K": "k", "ITEM": "a", "TWICE": 8}]


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
documents = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
near_lines = st.fixed_dictionaries({}, optional={"item": documents, "price": documents, "count": documents})


@settings(max_examples=examples(300), deadline=None)
@given(near_lines | documents)
def test_any_json_is_read_or_refused_and_what_is_read_comes_back(document):
    for kind in (Line, Model, Line | Place, Extra, dict[int, Place]):
        serde = Serdes.of(kind)
        try:
            value = serde.deserialize(json.dumps(document).encode())
        except SerializationError:
            continue
        assert serde.deserialize(serde.serialize(value)) == value
