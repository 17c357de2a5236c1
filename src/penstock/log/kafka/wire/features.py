"""The features of a cluster that all of its brokers have agreed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from penstock.log.kafka.wire.protocol_errors import failed

if TYPE_CHECKING:
    from penstock.log.kafka.wire.connection import BrokerConnection

__all__ = ["feature_level"]


def feature_level(connection: BrokerConnection, name: str) -> int:
    """Return the finalised level of a feature; 0: the cluster does not have it, or is too old to say so.

    Raises:
        KafkaException: The broker does not answer, or refuses.
    """
    from kafka.protocol.metadata import ApiVersionsRequest

    try:
        answer = connection.ask(
            ApiVersionsRequest(
                client_software_name="penstock", client_software_version="1", min_version=3, max_version=3
            )
        )
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNSUPPORTED_VERSION:
            return 0
        raise
    if answer.error_code:
        raise failed(answer.error_code, "asking for the features of the cluster")
    levels = {each.name: each.max_version_level for each in answer.finalized_features or ()}
    return int(levels.get(name, 0))
