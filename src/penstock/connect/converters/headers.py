"""Headers as texts: the default converter, which guesses types as Kafka's ``Values.parseString``, and their text."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, ClassVar

from penstock.base.java_text.dates import SimpleDateFormat
from penstock.base.java_text.numbers import parse_big_decimal, to_float32
from penstock.base.java_text.texts import JavaTextError, is_blank, trim
from penstock.connect.config import ConfigDef
from penstock.connect.converters.converter import Converter, Role
from penstock.connect.data import (
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    NO_VALUE,
    STRING,
    TIME,
    TIMESTAMP,
    BigInteger,
    DataError,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Moment,
    Schema,
    SchemaAndValue,
    Struct,
    Type,
    array,
    decimal_schema,
    java_class,
    map_of,
    wrapped,
)
from penstock.serde.data.logical import (
    DATE_NAME,
    DAY_MS,
    DECIMAL_NAME,
    TIME_NAME,
    TIMESTAMP_NAME,
    date_from_days,
    time_from_millis,
)
from penstock.serde.data.values import java_text, number_text

__all__ = ["SimpleHeaderConverter", "header_text", "moment_text", "number_of", "parse_header"]

DATE_FORMAT = SimpleDateFormat("yyyy-MM-dd")
TIME_FORMAT = SimpleDateFormat("HH:mm:ss.SSS'Z'")
TIMESTAMP_FORMAT = SimpleDateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")


def moment_text(value: Moment) -> str:
    """Return a moment as ISO 8601: of 1970-01-01 and before the time alone, at midnight the date alone.

    >>> [moment_text(Moment(ms)) for ms in (0, 86_400_000, 86_400_001)]
    ['00:00:00.000Z', '1970-01-02', '1970-01-02T00:00:00.001Z']
    """
    if value.ms < DAY_MS:
        return TIME_FORMAT.format(value.ms)
    return (TIMESTAMP_FORMAT if value.ms % DAY_MS else DATE_FORMAT).format(value.ms)


def header_text(value: Any, schema: Schema | None = None, *, embedded: bool = False) -> str:
    r"""Return the text of a value: texts as they are, lists and maps nearly as in JSON.

    Args:
        value: The value.
        schema: Its schema, which tells a float of 32 bits from one of 64.
        embedded: The value stands inside of another, so that texts are quoted.

    Raises:
        DataError: A value inside has no text.

    Example:
        >>> print(header_text({"a": [1, 'b"c', None]}))
        {"a":[1,"b\"c",null]}
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal | BigInteger):
        return number_text(value, schema)
    if isinstance(value, str | bytes):
        text = base64.b64encode(value).decode() if isinstance(value, bytes) else value
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"' if embedded else text
    if isinstance(value, list | tuple):
        items = schema.values if schema is not None else None
        return f"[{','.join(header_text(part, items, embedded=True) for part in value)}]"
    if isinstance(value, Mapping):
        keys, values = (schema.keys, schema.values) if schema is not None else (None, None)
        return f"{{{','.join(_pair(k, keys, v, values) for k, v in value.items())}}}"
    if isinstance(value, Struct):
        pairs = (_pair(part.name, None, value.get(part), part.schema) for part in value.schema.fields)
        return f"{{{','.join(pairs)}}}"
    if isinstance(value, Moment):
        return moment_text(value)
    raise DataError(f"Failed to serialize unexpected value type {java_class(value)}: {java_text(value)}")


def _pair(key: Any, keys: Schema | None, value: Any, values: Schema | None) -> str:
    return f"{header_text(key, keys, embedded=True)}:{header_text(value, values, embedded=True)}"


ORDER = (Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64)
BITS = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
CLASSES: dict[Type, type[int]] = {Type.INT8: Int8, Type.INT16: Int16, Type.INT32: Int32, Type.INT64: int}


class Merger:
    """The common schema of values that come one after another."""

    def __init__(self) -> None:
        self.common: Schema | None = None
        self._compatible = True

    def merge(self, element: SchemaAndValue | None) -> None:
        """Take one more value into account; null has no schema."""
        if element is None or element.schema is None or not self._compatible:
            return
        if self.common is None:
            self.common = element.schema
        else:
            self.common = _merged(self.common, element.schema)
            self._compatible = self.common is not None


def _merged(one: Schema, two: Schema) -> Schema | None:
    if one.type is two.type:
        if one.optional == two.optional:
            return one if one.optional else two
        return None
    if one.type not in ORDER or two.type not in ORDER:
        return None
    return one if ORDER.index(one.type) > ORDER.index(two.type) else two


def converted(schema: Schema | None, value: Any) -> Any:
    """Return a value as one of a schema. Kafka's ``Values.convertTo``.

    Raises:
        DataError: It cannot be.
    """
    if schema is None:
        return value
    if value is None:
        if schema.optional:
            return None
        raise DataError("Unable to convert a null value to a schema that requires a value")
    if schema.name in (DATE_NAME, TIME_NAME, TIMESTAMP_NAME):
        if isinstance(value, Moment):
            return value
        number = wrapped(number_of(value), 64)
        if schema.name == TIMESTAMP_NAME:
            return Moment(number)
        return (
            date_from_days(wrapped(number, 32)) if schema.name == DATE_NAME else time_from_millis(wrapped(number, 32))
        )
    if schema.name == DECIMAL_NAME:
        return value if isinstance(value, Decimal) else Decimal(repr(float(number_of(value))))
    if schema.type in BITS:
        bits = BITS[schema.type]
        return CLASSES[schema.type](wrapped(number_of(value), bits))
    if schema.type is Type.FLOAT32:
        return Float32(to_float32(float(number_of(value))))
    if schema.type is Type.FLOAT64:
        return Float64(number_of(value))
    if schema.type is Type.STRING and not isinstance(value, str):
        return base64.b64encode(value).decode() if isinstance(value, bytes) else java_text(value)
    return value


def number_of(value: Any) -> int | float | Decimal:
    """Return the number that a value is or that its text has.

    Raises:
        DataError: It has none.
    """
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return value
    cause: JavaTextError | None = None
    if isinstance(value, str):
        try:
            return parse_big_decimal(value)
        except JavaTextError as error:
            cause = error
    raise DataError(f"Unable to convert {java_text(value)} (class {java_class(value)}) to a number") from cause


MAX_DEPTH = 100
TEMPORAL: dict[int, tuple[SimpleDateFormat, Schema]] = {
    10: (DATE_FORMAT, DATE),
    13: (TIME_FORMAT, TIME),
    24: (TIMESTAMP_FORMAT, TIMESTAMP),
}
INTEGERS: tuple[tuple[int, Schema, type[int]], ...] = ((8, INT8, Int8), (16, INT16, Int16), (32, INT32, Int32))
DELIMITERS = frozenset(':,{}[]"')


def parse_header(text: str | None) -> SchemaAndValue:
    """Return the schema and value of a text: numbers, booleans, dates, lists, maps; anything else is a text.

    Example:
        >>> found = parse_header('[1, 300]')
        >>> str(found.schema.values), found.value
        ('Schema{INT16}', [1, 300])
        >>> parse_header("2019-08-23").schema.name
        'org.apache.kafka.connect.data.Date'
    """
    if text is None:
        return NO_VALUE
    if not text:
        return SchemaAndValue(STRING, text)
    return _HeaderParser(text).parse(embedded=False) or NO_VALUE


class _HeaderParser:
    def __init__(self, text: str) -> None:
        self._tokens = Tokens(text)
        self._depth = 0

    def parse(self, *, embedded: bool) -> SchemaAndValue | None:
        """Read a value; None is null."""
        tokens = self._tokens
        if not tokens.has_next():
            return None
        if embedded and tokens.take('"'):
            return self._quoted()
        for word, literal in (
            ("null", None),
            ("true", SchemaAndValue(BOOLEAN, value=True)),
            ("false", SchemaAndValue(BOOLEAN, value=False)),
        ):
            start = tokens.mark()
            if tokens.take(word) and (embedded or not tokens.has_next()):
                return literal
            tokens.rewind(start)
        start = tokens.mark()
        try:
            if tokens.take("["):
                return self._inside(self._list)
            if tokens.take("{"):
                return self._inside(self._map)
        except DataError:
            tokens.rewind(start)
        token = tokens.next()
        if is_blank(token):
            return SchemaAndValue(STRING, token)
        return self._word(trim(token), embedded=embedded)

    def _inside(self, read: Any) -> SchemaAndValue:
        self._depth += 1
        try:
            if self._depth > MAX_DEPTH:
                raise DataError(f"The value nests more than {MAX_DEPTH} levels deep")
            container: SchemaAndValue = read()
            return container
        finally:
            self._depth -= 1

    def _word(self, token: str, *, embedded: bool) -> SchemaAndValue:
        if token[0].isdecimal():
            start = self._tokens.mark()
            rest = self._tokens.next_few(4)
            moment = _temporal(token + rest) if rest is not None else None
            if moment is None:
                self._tokens.rewind(start)
                moment = _temporal(token)
            if moment is not None:
                return moment
        if token[0].isdecimal() or token[0] in "+-":
            try:
                return _number(parse_big_decimal(token))
            except JavaTextError:
                pass  # a text that begins like a number
        if embedded:
            raise DataError("Failed to parse embedded value")
        return SchemaAndValue(STRING, self._tokens.text)

    def _quoted(self) -> SchemaAndValue:
        parts: list[str] = []
        while self._tokens.has_next() and not self._tokens.take('"'):
            parts.append(self._tokens.next())
        content = "".join(parts)
        return _temporal(content) or SchemaAndValue(STRING, content)

    def _list(self) -> SchemaAndValue:
        tokens = self._tokens
        result: list[Any] = []
        merger = Merger()
        while tokens.has_next():
            if tokens.take("]"):
                if merger.common is None:
                    return SchemaAndValue(array(None), result)
                return SchemaAndValue(array(merger.common), [converted(merger.common, part) for part in result])
            if tokens.take(","):
                raise DataError(f"Unable to parse an empty array element: {tokens.text}")
            element = self.parse(embedded=True)
            merger.merge(element)
            result.append(element.value if element is not None else None)
            position = tokens.mark()
            if tokens.take("]"):
                tokens.rewind(position)
            elif not tokens.take(","):
                raise DataError("Array elements missing ',' delimiter")
        if tokens.previous == ",":
            raise DataError(f"Array is missing element after ',': {tokens.text}")
        raise DataError(f"Array is missing terminating ']': {tokens.text}")

    def _map(self) -> SchemaAndValue:
        tokens = self._tokens
        result: dict[tuple[type, Any], Any] = {}  # by the key and its type, which tells true from 1
        keys, values = Merger(), Merger()
        while tokens.has_next():
            if tokens.take("}"):
                common = values.common if keys.common is not None else None
                pairs = {converted(keys.common, k): converted(common, v) for (_, k), v in result.items()}
                return SchemaAndValue(map_of(keys.common, common), pairs)
            if tokens.take(","):
                raise DataError(f"Unable to parse a map entry with no key or value: {tokens.text}")
            key = self.parse(embedded=True)
            if key is None or key.value is None:
                raise DataError(f"Map entry may not have a null key: {tokens.text}")
            if not tokens.take(":"):
                raise DataError(f"Map entry is missing ':' at {tokens.mark()} in {tokens.text}")
            value = self.parse(embedded=True)
            name = _hashable(key.value)
            result[type(name), name] = value.value if value is not None else None
            tokens.take(",")
            keys.merge(key)
            values.merge(value)
        if tokens.previous == ",":
            raise DataError(f"Map is missing element after ',': {tokens.text}")
        raise DataError(f"Map is missing terminating '}}': {tokens.text}")


def _hashable(key: Any) -> Any:
    if isinstance(key, list | dict):
        raise DataError("lists and maps cannot be keys of a map here")
    return key


def _temporal(text: str) -> SchemaAndValue | None:
    text = text.replace("\\:", ":")
    if len(text) not in TEMPORAL:
        return None
    form, schema = TEMPORAL[len(text)]
    try:
        return SchemaAndValue(schema, Moment(form.parse(text)))
    except JavaTextError:
        return None


def _number(value: Decimal) -> SchemaAndValue:
    scale = -int(value.as_tuple().exponent)
    exact = _exact(value, scale)
    if exact is not None:
        for bits, schema, kind in INTEGERS:
            if -(1 << (bits - 1)) <= exact < 1 << (bits - 1):
                return SchemaAndValue(schema, kind(exact))
        return SchemaAndValue(INT64, exact)
    double = float(value)
    single = to_float32(double)
    if math.isfinite(single) and scale:
        return SchemaAndValue(FLOAT32, Float32(single))
    if math.isfinite(double) and scale:
        return SchemaAndValue(FLOAT64, Float64(double))
    return SchemaAndValue(decimal_schema(scale), value)


def _exact(value: Decimal, scale: int) -> int | None:
    """Return the number as one of 64 bits, if it is whole and fits."""
    if scale < -40 and value:
        return None
    whole = int(value) if scale < 5000 or not value else 0
    return whole if whole == value and -(1 << 63) <= whole < 1 << 63 else None


class Tokens:
    """A text that is read token by token, and can be set back. Kafka's ``Values.Parser``."""

    __slots__ = ("_at", "_next", "previous", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.previous: str | None = None
        self._at = 0
        self._next: str | None = None

    def mark(self) -> int:
        """Return the position of the next token."""
        return self._at - len(self._next or "")

    def rewind(self, position: int) -> None:
        """Go back to a mark."""
        self._at = position
        self._next = self.previous = None

    def has_next(self) -> bool:
        """Return whether there is another token."""
        return self._next is not None or self._at < len(self.text)

    def next(self) -> str:
        """Take the next token."""
        token = self._next if self._next is not None else self._consume()
        self._next = None
        self.previous = token
        return token

    def next_few(self, count: int) -> str | None:
        """Take so many tokens as one text; None, and nothing is taken, if there are fewer."""
        start = self.mark()
        for _ in range(count):
            if not self.has_next():
                self.rewind(start)
                return None
            self.next()
        return self.text[start : self._at]

    def take(self, expected: str) -> bool:
        """Take the next token if it is this one; blanks before and around it are passed over."""
        if self._next is None:
            if not self.has_next():
                return False
            self._next = self._consume()
        while is_blank(self._next) and self._at < len(self.text):
            self._next = self._consume()
        if trim(self._next) != expected:
            return False
        self._next = None
        return True

    def _consume(self) -> str:
        start, escaped = self._at, False
        while self._at < len(self.text):
            character = self.text[self._at]
            if character in DELIMITERS and not escaped:
                if start == self._at:
                    self._at += 1
                return self.text[start : self._at]
            escaped = character == "\\" and not escaped
            self._at += 1
        return self.text[start:]


class SimpleHeaderConverter(Converter):
    """Headers as text: written by ``header_text``, read by ``parse_header``.

    >>> SimpleHeaderConverter().to_connect("lines", b"3.5").value
    3.5
    """

    java_class: ClassVar[str] = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
    config: ClassVar[ConfigDef] = ConfigDef()

    def configure(self, settings: Mapping[str, Any], role: Role = "header") -> None:
        """Take the settings: there are none."""

    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:  # noqa: ARG002 - of the interface
        """Return the value that the text looks like."""
        return NO_VALUE if data is None else parse_header(data.decode("utf-8", "replace"))

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002 - of the interface
        """Return the text of a value.

        Raises:
            DataError: It has none.
        """
        return None if value is None else header_text(value, schema).encode("utf-8", "replace")
