"""`PRINT` at `/query`: lines of text, a record each, until its limit or until the client goes."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Iterator
from typing import Any

from penstock.sql.catalog import Catalog
from penstock.sql.results import Stream

__all__ = ["Printed"]

UNKNOWN = "text, or bytes in hexadecimal"


class Printed:
    """The records of a topic as text.

    Args:
        topic: The topic.
        stream: The result of the statement.
        catalog: The streams and tables, of which the first over the topic says how its records are read.
    """

    content_type = "text/plain; charset=utf-8"
    runs_on = True

    def __init__(self, topic: str, stream: Stream, catalog: Catalog) -> None:
        self.query_id = f"print_{secrets.token_hex(8)}"
        self._stream = stream
        source = next((each for each in catalog.sources.values() if each.topic == topic), None)
        forms = (UNKNOWN, UNKNOWN) if source is None else (source.key_format.name, source.value_format.name)
        self._formats = f"Key format: {forms[0]}\nValue format: {forms[1]}\n"

    def chunks(self) -> Iterator[str]:
        """Yield the lines; an empty text whenever no record comes for a while."""
        yield self._formats
        for row in self._stream.rows:
            yield "" if row is None else _line(row)

    def stop(self) -> None:
        """End the lines; from any thread, and more than once."""
        self._stream.close()


def _line(row: tuple[Any, ...]) -> str:
    r"""Return a record as ksqlDB prints it.

    >>> _line((1000, None, '{"A": 1}', 0, 5))
    'rowtime: 1970/01/01 00:00:01.000 Z, key: <null>, value: {"A": 1}, partition: 0\n'
    """
    time, key, value, partition, _ = row
    key, value = ("<null>" if part is None else part for part in (key, value))
    return f"rowtime: {_time(time)}, key: {key}, value: {value}, partition: {partition}\n"


def _time(milliseconds: int) -> str:
    try:
        at = dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
    return f"{at:%Y/%m/%d %H:%M:%S}.{milliseconds % 1000:03d} Z"
