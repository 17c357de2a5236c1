"""The names of objects: they hold the offsets of their records, so that what is written can be seen in the store."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

from penstock.connect.data import DataError, SettingError
from penstock.log.base import TopicPartition

__all__ = ["ObjectName", "check_folders", "check_store_url", "fixed_part", "folder_of"]

NAME = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)\+(?P<partition>\d+)\+(?P<first>\d{20})-(?P<last>\d{20})\.[a-z.]+")
VARIABLE = re.compile(r"\$?\{[^}]*\}")
STORES = ("s3://", "s3a://", "gs://", "az://", "abfs://", "abfss://", "file:///", "memory://")
TIME = re.compile(r"%[YmdHMSj]")
JODA = re.compile(r"\b[yY]{2,4}\b|\b(?:MM|dd|HH|mm)\b")


@dataclass(frozen=True, slots=True)
class ObjectName:
    """The name of an object, without folders: its partition, and the offsets of its first and last record.

    >>> print(ObjectName(TopicPartition("hits", 0), 5, 9).text(".parquet"))
    hits+0+00000000000000000005-00000000000000000009.parquet
    """

    place: TopicPartition
    first: int
    last: int

    def text(self, suffix: str) -> str:
        """The name as text."""
        return f"{self.place.topic}+{self.place.partition}+{self.first:020}-{self.last:020}{suffix}"

    @classmethod
    def parse(cls, path: str) -> Self | None:
        """The name that a path ends with; None if the object is not one of a sink.

        >>> ObjectName.parse("a/hits+0+00000000000000000005-00000000000000000009.json.gz").last
        9
        """
        found = NAME.fullmatch(path.rpartition("/")[2])
        if found is None:
            return None
        place = TopicPartition(found["topic"], int(found["partition"]))
        return cls(place, int(found["first"]), int(found["last"]))


def check_store_url(name: str, value: object) -> None:
    """Refuse a URL of another kind of store.

    Raises:
        SettingError: It is one.
    """
    if value is not None and not str(value).startswith(STORES):
        raise SettingError.invalid(name, value, "begin with s3://, gs://, az:// or file:///")


def check_folders(name: str, value: object) -> None:
    """Refuse folders outside of the store, and variables that there are not.

    Raises:
        SettingError: There are some.
    """
    text = str(value)
    if any(step in (".", "..") for step in text.split("/")):
        raise SettingError.invalid(name, value, "folders are below store.url: no . and ..")
    if "'" in text or JODA.search(text):
        raise SettingError.invalid(
            name, value, "times are %Y, %m, %d, %H, %M, %S, as in date=%Y-%m-%d: YYYY and 'text' are Confluent's"
        )
    unknown = [found for found in VARIABLE.findall(text) if found not in ("${topic}", "${partition}")]
    if unknown:
        raise SettingError.invalid(name, value, f"{unknown[0]} is neither ${{topic}} nor ${{partition}}")


def folder_of(pattern: str, place: TopicPartition, timestamp_ms: int | None) -> str:
    """The folder of a record: ``${topic}`` and ``${partition}`` of its place, and its time in UTC by ``%Y`` and so on.

    >>> folder_of("${topic}/day=%Y-%m-%d", TopicPartition("hits", 0), 0)
    'hits/day=1970-01-01'
    """
    text = pattern.replace("${topic}", place.topic).replace("${partition}", str(place.partition)).strip("/")
    if TIME.search(text) is None:
        return text
    try:
        when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms or 0)
    except OverflowError as error:
        raise DataError(
            f"the time {timestamp_ms} of a record is in no year from 1 to 9999",
            hint="Times are milliseconds since 1970: correct the producer, or path.format without % parts.",
        ) from error
    return TIME.sub(lambda found: when.strftime(found[0]).zfill(4 if found[0] == "%Y" else 0), text)


def fixed_part(pattern: str, place: TopicPartition) -> tuple[str, bool]:
    """The folder below which all objects of a partition are, and whether they are all in that one folder."""
    whole = pattern.replace("${topic}", place.topic).replace("${partition}", str(place.partition)).strip("/")
    steps = whole.split("/")
    fixed = next((at for at, step in enumerate(steps) if TIME.search(step)), len(steps))
    return "/".join(steps[:fixed]), fixed == len(steps)
