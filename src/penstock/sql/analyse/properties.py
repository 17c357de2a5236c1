"""The properties of WITH: which there are, their values, and the formats, windows and times that they say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.base.nearest_name import did_you_mean
from penstock.errors import PenstockError, SqlError
from penstock.sql.analyse.statement_errors import named, refusal
from penstock.sql.catalog import Catalog, DataFormat, SourceWindow, TimestampColumn
from penstock.sql.formats import format_info
from penstock.sql.functions.java_dates import date_pattern
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse.statement_nodes import Property
from penstock.sql.parse.tokens import NOWHERE, TextPosition
from penstock.sql.types import SqlValueError
from penstock.topology.building.names import check_name

__all__ = ["Properties", "duration_text_ms"]

COMMON = frozenset(
    {
        "KAFKA_TOPIC",
        "FORMAT",
        "KEY_FORMAT",
        "VALUE_FORMAT",
        "PARTITIONS",
        "REPLICAS",
        "RETENTION_MS",
        "CLEANUP_POLICY",
        "TIMESTAMP",
        "TIMESTAMP_FORMAT",
        "WRAP_SINGLE_VALUE",
        "KEY_DELIMITER",
        "VALUE_DELIMITER",
        "KEY_SCHEMA_ID",
        "VALUE_SCHEMA_ID",
        "KEY_SCHEMA_FULL_NAME",
        "VALUE_SCHEMA_FULL_NAME",
        "VALUE_AVRO_SCHEMA_FULL_NAME",
        "KEY_PROTOBUF_NULLABLE_REPRESENTATION",
        "VALUE_PROTOBUF_NULLABLE_REPRESENTATION",
    }
)
OF_SOURCES = COMMON | {"WINDOW_TYPE", "WINDOW_SIZE", "SOURCED_BY_CONNECTOR"}
OF_FORMATS = ("DELIMITER", "SCHEMA_ID", "SCHEMA_FULL_NAME", "PROTOBUF_NULLABLE_REPRESENTATION")
UNIT_MS = {"MILLISECOND": 1, "SECOND": 1000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000}
LEAST = {"PARTITIONS": 1, "REPLICAS": -1, "RETENTION_MS": -1}
NULLABLE = ("OPTIONAL", "WRAPPER")
DELIMITERS = {"TAB": "\t", "SPACE": " "}
_DURATION = re.compile(r"\s*(\d+)\s*([A-Za-z]+)\s*")


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties of a WITH clause by name, with the place of each."""

    values: Mapping[str, Any]
    places: Mapping[str, TextPosition]

    @classmethod
    def of(cls, clause: Iterable[Property], *, of_query: bool = False) -> Properties:
        """Read a WITH clause.

        Raises:
            SqlError: A property does not exist, or is there twice.
        """
        values: dict[str, Any] = {}
        places: dict[str, TextPosition] = {}
        allowed = COMMON if of_query else OF_SOURCES
        for item in clause:
            name = item.name.upper()
            if name not in allowed:
                raise refusal(item.at, f"WITH has an unknown property: {name}", did_you_mean(name, allowed))
            if name in values:
                raise refusal(item.at, f"WITH has a property twice: {name}")
            values[name] = _plain(item.value)
            places[name] = item.at
        properties = cls(values, places)
        properties._check_formats()
        properties._check_values()
        return properties

    def at(self, name: str) -> TextPosition:
        """Return the place of a property."""
        return self.places.get(name, NOWHERE)

    def text(self, name: str) -> str | None:
        """Return a property as a text; None without it."""
        value = self.values.get(name)
        return None if value is None else str(value)

    def number(self, name: str) -> int | None:
        """Return a property that is a whole number."""
        text = self.text(name)
        if text is None:
            return None
        if not text.strip().lstrip("-").isdigit():
            raise refusal(self.at(name), f"Invalid value {text} for property {name}: it must be a whole number")
        if int(text) < LEAST.get(name, int(text)):
            raise refusal(self.at(name), f"Invalid value {text} for property {name}: it must be {LEAST[name]} or more")
        return int(text)

    def flag(self, name: str) -> bool | None:
        """Return a property that is true or false."""
        value = self.values.get(name)
        if value is None or isinstance(value, bool):
            return value
        if str(value).lower() not in ("true", "false"):
            raise refusal(self.at(name), f"Invalid value {value} for property {name}: it must be true or false")
        return str(value).lower() == "true"

    def timestamp(self) -> TimestampColumn | None:
        """Return the column of TIMESTAMP; a name that is not quoted within the text is in upper case."""
        name = self.text("TIMESTAMP")
        if name is None:
            if self.text("TIMESTAMP_FORMAT") is not None:
                raise refusal(self.at("TIMESTAMP_FORMAT"), "TIMESTAMP_FORMAT needs TIMESTAMP, the name of a column")
            return None
        name = name[1:-1].replace("``", "`") if len(name) > 1 and name[0] == name[-1] == "`" else name.upper()
        return TimestampColumn(name, self.text("TIMESTAMP_FORMAT"))

    def window(self) -> SourceWindow | None:
        """Return the windows of a source's keys."""
        kind, size = self.text("WINDOW_TYPE"), self.text("WINDOW_SIZE")
        if kind is None:
            if size is not None:
                raise refusal(self.at("WINDOW_SIZE"), "'WINDOW_SIZE' should only be set together with WINDOW_TYPE")
            return None
        kind = kind.upper()
        if kind not in ("SESSION", "TUMBLING", "HOPPING"):
            raise refusal(self.at("WINDOW_TYPE"), f"Unknown WINDOW_TYPE: {kind}", "TUMBLING, HOPPING or SESSION.")
        if kind == "SESSION":
            if size is not None:
                raise refusal(self.at("WINDOW_SIZE"), "SESSION windows have no size; remove 'WINDOW_SIZE'.")
            return SourceWindow("SESSION")
        if size is None:
            raise refusal(self.at("WINDOW_TYPE"), f"'WINDOW_SIZE' must be set for {kind} windows")
        return SourceWindow("TUMBLING" if kind == "TUMBLING" else "HOPPING", self._size(size))

    def _size(self, text: str) -> int:
        try:
            return duration_text_ms(text)
        except ValueError as error:
            raise refusal(self.at("WINDOW_SIZE"), f"Invalid WINDOW_SIZE: {error}") from None

    def format_name(self, part: str) -> str | None:
        """Return the format of keys (KEY) or values (VALUE) that is given, in upper case."""
        name = f"{part}_FORMAT" if self.text(f"{part}_FORMAT") is not None else "FORMAT"
        format_text = self.text(name)
        if format_text is None:
            return None
        try:
            return format_info(format_text.strip()).name
        except SqlError as error:
            raise refusal(self.at(name), error.message, error.hint) from None

    def format(self, part: str, inherited: DataFormat | None, otherwise: str | None) -> DataFormat | None:
        """Return the format of keys or values, with its properties.

        Args:
            part: KEY or VALUE.
            inherited: The format of the source of a query.
            otherwise: The name of the default format.
        """
        format_name = self.format_name(part)
        name = format_name or (inherited.name if inherited else otherwise)
        if name is None:
            return None
        own = dict(inherited.properties) if inherited and inherited.name == name else {}
        own = {key: value for key, value in own.items() if key != "SCHEMA_ID"}
        property_names = format_info(name).properties
        for each in OF_FORMATS:
            value = self.text(f"{part}_{each}")
            if each == "SCHEMA_FULL_NAME" and value is None and part == "VALUE":
                value = self.text("VALUE_AVRO_SCHEMA_FULL_NAME")
            if value is None:
                continue
            plain = each.removeprefix("PROTOBUF_")
            if plain not in property_names:
                raise refusal(self.at(f"{part}_{each}"), f"The format {name} has no property [{plain.lower()}]")
            own[plain] = self._delimiter(part, value) if plain == "DELIMITER" else value
        return DataFormat(name, tuple(sorted(own.items())))

    def _delimiter(self, part: str, text: str) -> str:
        name = f"{part}_DELIMITER"
        if text.upper() in DELIMITERS:
            return DELIMITERS[text.upper()]
        reason = f"{name}: "
        if not text.strip():
            raise refusal(
                self.at(name),
                f"{reason}the delimiter is empty.",
                "A tab is written 'TAB', and a space 'SPACE'.",
            )
        if len(text) != 1:
            raise refusal(
                self.at(name),
                f"{reason}'{text}' is not a delimiter value.",
                "A delimiter is a single character, TAB or SPACE.",
            )
        return text

    def _check_formats(self) -> None:
        for part in ("KEY", "VALUE"):
            if f"{part}_FORMAT" in self.values and "FORMAT" in self.values:
                raise refusal(
                    self.at(f"{part}_FORMAT"),
                    f"WITH has both '{part}_FORMAT' and 'FORMAT', and 'FORMAT' stands for the key and value format.",
                    "Use either FORMAT, or KEY_FORMAT and VALUE_FORMAT.",
                )
            self.format_name(part)

    def _check_values(self) -> None:
        for name in LEAST:
            self.number(name)
        if (topic := self.text("KAFKA_TOPIC")) is not None:
            self._checked("KAFKA_TOPIC", lambda: check_name(topic, "topic"))
        if (pattern := self.text("TIMESTAMP_FORMAT")) is not None:
            self._checked("TIMESTAMP_FORMAT", lambda: date_pattern(pattern))
        for name, value in self.values.items():
            if name.endswith("SCHEMA_FULL_NAME") and not str(value).strip():
                raise refusal(self.at(name), f"{name} is empty: a schema needs a name")
            if name.endswith("NULLABLE_REPRESENTATION") and str(value).upper() not in NULLABLE:
                raise refusal(
                    self.at(name), f"Invalid value {value} for property {name}: it must be {named(NULLABLE, 'or')}"
                )

    def _checked(self, name: str, check: Callable[[], object]) -> None:
        try:
            check()
        except SqlValueError as error:
            raise refusal(self.at(name), f"Invalid value for property {name}: {error}") from None
        except PenstockError as error:
            raise refusal(self.at(name), f"Invalid value for property {name}: {error.message}", error.hint) from None

    def default_formats(self, catalog: Catalog) -> tuple[str, str | None]:
        """Return the names of the default formats of keys and values."""
        key = catalog.setting("ksql.persistence.default.format.key", "KAFKA").upper()
        return key, catalog.setting("ksql.persistence.default.format.value").upper() or None


def _plain(node: Any) -> Any:
    match node:
        case x.StringLiteral(value) | x.IntegerLiteral(value) | x.BooleanLiteral(value):
            return value
        case x.DecimalLiteral(text) | x.DoubleLiteral(text):
            return text
    return None


def duration_text_ms(text: str) -> int:
    """Return a duration as WINDOW_SIZE has it, in milliseconds.

    Raises:
        ValueError: The text is none.

    >>> duration_text_ms("30 seconds")
    30000
    """
    match = _DURATION.fullmatch(text)
    unit = match.group(2).upper().removesuffix("S") if match else ""
    if not match or unit not in UNIT_MS:
        raise ValueError(f"{text!r} is not a duration such as '10 SECONDS'")
    return int(match.group(1)) * UNIT_MS[unit]
