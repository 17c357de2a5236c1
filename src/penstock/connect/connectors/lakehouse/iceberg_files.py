"""The files of Iceberg tables: many small ones become few large ones."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.base.log_lines import own_logger

__all__ = ["NO_RETRIES", "compact_files"]

NO_RETRIES = ("commit.retry.num-retries", "0")
TARGET = ("write.target-file-size-bytes", 512 << 20)
MOST_BYTES = 128 << 20  # of files that are read at once: several times as much in memory

_log = own_logger(__name__)


def compact_files(table: Any, properties: Mapping[str, str]) -> bool:
    """Write the small files of each partition anew as few large ones, in one snapshot that replaces them.

    Files with deletes of other engines, and those of older partition specs, are left as they are.

    Args:
        table: The table, as it is now; afterwards as it was committed.
        properties: What the snapshot has beside its own: the offsets of the one before it.

    Returns:
        Whether a snapshot was made.

    Raises:
        ConflictError: Others have changed the table; it can be done later.
    """
    from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files

    try:
        bins = _bins(list(table.scan().plan_files()), _most_bytes(table), table.metadata.default_spec_id)
    except ValueError as error:  # such as deletes by equality, which the library does not read
        _log.warning("the files of %s are not compacted: %s", ".".join(table.name()), error)
        return False
    if not bins:
        return False
    metadata, write_uuid, counter = table.metadata, uuid.uuid4(), itertools.count()
    old, new = [], []
    for tasks in bins:
        rows = ArrowScan(metadata, table.io, metadata.schema(), _all_rows()).to_table(tasks)
        old += [task.file for task in tasks]
        new += list(_dataframe_to_data_files(metadata, rows, table.io, write_uuid, counter))
    table.properties[NO_RETRIES[0]] = NO_RETRIES[1]  # of this copy alone
    transaction = table.transaction()
    files = _replacement(transaction, table.io, properties)
    for file in old:
        files.delete_data_file(file)
    for file in new:
        files.append_data_file(file)
    files.commit()
    transaction.commit_transaction()
    return True


def _all_rows() -> Any:
    from pyiceberg.expressions import AlwaysTrue

    return AlwaysTrue()


def _most_bytes(table: Any) -> int:
    name, default = TARGET
    return min(int(table.properties.get(name, default)), MOST_BYTES)


def _bins(tasks: Sequence[Any], most_bytes: int, spec_id: int) -> list[list[Any]]:
    """Return the files that become one each: neighbours in age of one partition, small ones, two at least."""
    by_partition: dict[Any, list[Any]] = {}
    for task in tasks:
        if task.file.spec_id == spec_id and not task.delete_files and task.file.file_size_in_bytes < most_bytes // 2:
            by_partition.setdefault(task.file.partition, []).append(task)
    bins: list[list[Any]] = []
    for partition in by_partition.values():
        current: list[Any] = []
        size = 0
        for task in partition:
            if current and size + task.file.file_size_in_bytes > most_bytes:
                bins.append(current)
                current, size = [], 0
            current.append(task)
            size += task.file.file_size_in_bytes
        bins.append(current)
    return [each for each in bins if len(each) > 1]


def _replacement(transaction: Any, io: Any, properties: Mapping[str, str]) -> Any:
    """Return what makes a snapshot of the operation ``replace``: readers of new rows pass it over."""
    from pyiceberg.table.snapshots import Operation, Summary
    from pyiceberg.table.update.snapshot import _OverwriteFiles

    class Replacement(_OverwriteFiles):
        def _summary(self, snapshot_properties: Mapping[str, str] = properties) -> Summary:
            summary = super()._summary(dict(snapshot_properties))
            return Summary(operation=Operation.REPLACE, **summary.additional_properties)

    return Replacement(
        operation=Operation.OVERWRITE, transaction=transaction, io=io, snapshot_properties=dict(properties)
    )
