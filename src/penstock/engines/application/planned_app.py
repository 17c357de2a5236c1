"""A planned application: its topology and settings, with the plan over the topics of its log."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.engines.application.locations import Locations
from penstock.topology.plan.changelogs import changelogs_of
from penstock.topology.plan.document import document_of, fingerprint_of

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.log.base import TopicLog
    from penstock.topology.plan.changelogs import Changelog
    from penstock.topology.plan.plan import PhysicalPlan
    from penstock.topology.topology import Topology

__all__ = ["PlannedApp"]


@dataclass(frozen=True)
class PlannedApp:
    """An application on the driver, as it starts or as its state is repaired.

    Attributes:
        topology: The topology, as built.
        config: The application's settings.
        plan: The plan of the topology over the existing topics.
        log: The application's log.
    """

    topology: Topology
    config: StreamsConfig
    plan: PhysicalPlan
    log: TopicLog

    @property
    def application(self) -> str:
        """The ``application.id``."""
        return self.plan.application_id

    @cached_property
    def places(self) -> Locations:
        """The locations of the application's state."""
        return Locations.of(self.config, self.log)

    @property
    def checkpoint(self) -> str:
        """The checkpoint location."""
        return self.places.checkpoint

    @cached_property
    def document(self) -> dict[str, Any]:
        """The facts of the plan that a checkpoint depends on."""
        return document_of(self.plan, self.topology, self.config)

    @cached_property
    def fingerprint(self) -> str:
        """The checksum of `document`."""
        return fingerprint_of(self.document)

    @cached_property
    def changelogs(self) -> tuple[Changelog, ...]:
        """The changelog topics that the application writes; none if ``penstock.changelog.enabled`` is off."""
        is_on = self.config["penstock.changelog.enabled"]
        return tuple(changelogs_of(self.topology, self.plan, self.config)) if is_on else ()

    @property
    def loss_fails(self) -> bool:
        """True if ``penstock.data.loss`` is "fail"."""
        return bool(self.config["penstock.data.loss"] == "fail")
