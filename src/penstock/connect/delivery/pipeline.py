"""What each record goes through besides the task itself: transformations, converters, the handling of errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.connect.data import ConnectRecord
from penstock.connect.delivery.conversion import Converters
from penstock.connect.delivery.errors import ErrorHandler, Tolerance
from penstock.connect.plugins import Plugins, TransformationChain, transformation_chain
from penstock.log import ConsumerRecord

__all__ = ["Pipeline"]

R = TypeVar("R", bound=ConnectRecord)


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
        """The steps of a connector without a worker: its first failed record ends it, unless errors are tolerated.

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

    def transformed(self, record: R, original: Callable[[], ConsumerRecord] | None = None) -> tuple[bool, R | None]:
        """Take a record through the transformations.

        Args:
            record: The record.
            original: Finds the record as it was read from a topic, for reports; None: it is a source's.

        Returns:
            Whether none has failed, and the record; None: it is dropped.

        Raises:
            ConnectError: One has failed, and errors are not tolerated.
        """
        current: R | None = record
        for stage in self.chain.stages:
            if current is None:
                break
            now = current
            try:
                current = stage.apply(now)
            except Exception as error:  # noqa: BLE001 - whatever a plugin raises
                step = ("TRANSFORMATION", type(stage.transformation).java_class)
                read, shown = (None, record) if original is None else (original(), None)
                passed, current = self.errors.after(
                    error, step, lambda stage=stage, now=now: stage.apply(now), read, shown  # type: ignore[misc]
                )  # fmt: skip
                if not passed:
                    return False, None
        return True, current

    def close(self) -> None:
        """Close the transformations."""
        self.chain.close()
