"""The listener of restores: Kafka's ``StateRestoreListener``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.log.base import TopicPartition

__all__ = ["StateRestoreListener"]


class StateRestoreListener:
    """Kafka's ``StateRestoreListener``: called on the driver while stores are restored, in continuous mode.

    Subclass it, override what you need, and pass it to `KafkaStreams.set_global_state_restore_listener`. Threads report
    about once a second, so one call of `on_batch_restored` may stand for several batches. Standbys do not count.

    Example:
        >>> class Printer(StateRestoreListener):
        ...     def on_restore_end(self, place, store, total):
        ...         print(f"{store}: {total} records restored")
    """

    def on_restore_start(self, place: TopicPartition, store: str, start: int, end: int) -> None:
        """Note the beginning of a restore.

        Args:
            place: The partition of the changelog.
            store: The store.
            start: The first offset to read.
            end: The offset after the last one.
        """

    def on_batch_restored(self, place: TopicPartition, store: str, batch_end: int, count: int) -> None:
        """Note records that have been restored.

        Args:
            place: The partition of the changelog.
            store: The store.
            batch_end: The offset after the last of them.
            count: Their number.
        """

    def on_restore_end(self, place: TopicPartition, store: str, total: int) -> None:
        """Note the end of a restore, with the number of records that were restored."""

    def on_restore_suspended(self, place: TopicPartition, store: str, total: int) -> None:
        """Note that a task has gone elsewhere before its restore ended, with the number of records so far."""
