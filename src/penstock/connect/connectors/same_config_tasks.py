"""Sinks whose tasks all have the connector's config."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.connect.api import SinkConnector

__all__ = ["AlikeTasksSink"]


class AlikeTasksSink(SinkConnector):
    """A sink of which each task gets the connector's config; the group shares out the partitions among them."""

    def start(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        self.parse(settings)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        return [self._settings] * max_tasks
