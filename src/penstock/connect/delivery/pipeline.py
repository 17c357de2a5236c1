"""What each record goes through besides the task itself: transformations, converters, the handling of errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from penstock.connect.converters import ByteArrayConverter
from penstock.connect.data import ConnectRecord, SinkColumns, SourceBatch, SourceRecord
from penstock.connect.delivery.conversion import Converters
from penstock.connect.delivery.record_errors import ErrorHandler, Tolerance
from penstock.connect.plugins import Plugins, Stage, TransformationChain, transformation_chain
from penstock.connect.transforms import SidedTransformation
from penstock.log import ConsumerRecord

__all__ = ["Pipeline"]

R = TypeVar("R", bound=ConnectRecord)
B = TypeVar("B", SourceBatch, SinkColumns)


def _strict() -> ErrorHandler:
    return ErrorHandler(Tolerance(), time.sleep)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The steps of a connector's records.

    Attributes:
        converters: The converters.
        chain: The transformations.
        errors: Decides about records that fail; by default the first one ends the task.
    """

    converters: Converters
    chain: TransformationChain = field(default_factory=TransformationChain)
    errors: ErrorHandler = field(default_factory=_strict)

    @classmethod
    def of(cls, config: Mapping[str, Any], plugins: Plugins, worker: Mapping[str, Any] | None = None) -> Pipeline:
        """Return the steps of a connector without a worker.

        Its first failed record ends it, unless errors are tolerated.

        Args:
            config: The connector's config.
            plugins: The plugins that there are.
            worker: The settings of converters that the config does not name.

        Raises:
            SettingError: There is no such plugin, or a setting of one is wrong.
        """
        converters = Converters.of(config, plugins, worker)
        errors = ErrorHandler(Tolerance.of(config), time.sleep)
        return cls(converters, transformation_chain(config, plugins), errors)

    @property
    def copies(self) -> bool:
        """Whether bytes come out as they go in: no transformation, and converters of bytes alone."""
        converters = (self.converters.key, self.converters.value, self.converters.header)
        return not self.chain.stages and all(type(each) is ByteArrayConverter for each in converters)

    def columns(self, batch: B) -> tuple[B, tuple[Stage, ...]]:
        """Take a batch through the first transformations, those that change all keys or values at once.

        Returns:
            The batch, and the transformations that are left for its records.
        """
        stages = self.chain.stages
        for number, stage in enumerate(stages):
            transformation = stage.transformation
            if stage.predicate is not None or not isinstance(transformation, SidedTransformation):
                return batch, stages[number:]
            is_key = transformation.side == "key"
            schema, column = (batch.key_schema, batch.keys) if is_key else (batch.value_schema, batch.values)
            try:
                updated = None if column is None else transformation.all_updated(schema, column)
            except Exception:  # noqa: BLE001 - record by record it is known which one has failed
                updated = None
            if updated is None:
                return batch, stages[number:]
            if is_key:
                batch = replace(batch, key_schema=updated[0], keys=updated[1])
            else:
                batch = replace(batch, value_schema=updated[0], values=updated[1])
        return batch, ()

    def transformed(
        self,
        record: R,
        original: Callable[[], ConsumerRecord] | None = None,
        *,
        shown: Callable[[], SourceRecord] | None = None,
        stages: Sequence[Stage] | None = None,
    ) -> tuple[bool, R | None]:
        """Take a record through the transformations.

        Args:
            record: The record.
            original: Finds the record as it was read from a topic, for reports; None: it is a source's.
            shown: Finds a source's record as its task made it, for reports; by default it is this one.
            stages: The transformations; by default all.

        Returns:
            Whether none has failed, and the record; None: it is dropped.

        Raises:
            ConnectError: One has failed, and errors are not tolerated.
        """
        current: R | None = record
        for stage in self.chain.stages if stages is None else stages:
            if current is None:
                break
            now = current
            try:
                current = stage.apply(now)
            except Exception as error:  # noqa: BLE001 - whatever a plugin raises
                step = ("TRANSFORMATION", type(stage.transformation).java_class)
                read = None if original is None else original()
                told = None if read is not None else record if shown is None else shown()
                passed, current = self.errors.after(
                    error, step, lambda stage=stage, now=now: stage.apply(now), read, told  # type: ignore[misc]
                )  # fmt: skip
                if not passed:
                    return False, None
        return True, current

    def close(self) -> None:
        """Close the transformations."""
        self.chain.close()
