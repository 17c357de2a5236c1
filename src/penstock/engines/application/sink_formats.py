"""Notes in the log about the serdes of a topology's sinks, so that tools can show their topics."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.base.log_lines import own_logger
from penstock.errors import ConfigError, LogError
from penstock.log.formats import TopicFormat, note_formats
from penstock.serde import Serdes
from penstock.topology.configured.serdes import with_serdes

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.log.base import TopicLog
    from penstock.topology.topology import Topology

__all__ = ["formats_of_sinks", "note_sinks"]

_log = own_logger(__name__)
_REGISTERED = ("avro", "json_schema")


def note_sinks(topology: Topology, config: StreamsConfig, log: TopicLog) -> None:
    """Note the formats of the sinks; without the permission, the application runs without the notes."""
    try:
        note_formats(log, config["application.id"], formats_of_sinks(topology, config))
    except LogError as error:
        _log.info("the serdes of the sinks are not noted in the log: %s", error)


def formats_of_sinks(topology: Topology, config: StreamsConfig) -> dict[str, TopicFormat]:
    """Return the formats by topic, for sinks whose serdes have names."""
    formats = {}
    for sink in with_serdes(topology, config).sinks:
        if sink.topic is None or sink.internal:
            continue
        key, value = _name(sink.key_serde), _name(sink.value_serde)
        if key and value:
            needs = any(name in _REGISTERED for name in (key, value))
            formats[sink.topic] = TopicFormat(key, value, _registry(config) if needs else "")
    return formats


def _name(serde: Any) -> str:
    """Return a name for which `Serdes.of` returns a serde that reads the same bytes; empty if there is none."""
    name = str(getattr(serde, "name", serde or ""))
    name = "json" if name.startswith("json<") else name
    try:
        Serdes.of(name)
    except ConfigError:
        return ""
    return name


def _registry(config: StreamsConfig) -> str:
    """Return the registry's URL without user and password."""
    return re.sub(r"//[^/@]*@", "//", str(config.get("schema.registry.url") or ""))
