"""What the answers of a cluster mean for an application: a start is refused only if it cannot run."""

from types import SimpleNamespace

from confluent_kafka import KafkaError

from penstock import StreamsBuilder, StreamsConfig
from penstock.engines.application.log_needs import needs_of
from penstock.log.application_needs import ApplicationNeeds
from penstock.log.kafka.checkup.checkup import broker_rules
from penstock.log.kafka.checkup.cluster_questions import TopicFacts, operations_of, shown
from penstock.log.kafka.checkup.rights import MissingRight, missing_topic_rights
from penstock.log.kafka.checkup.start import compaction_refusal

SHOP = ApplicationNeeds("shop", sources=("orders",), internal={"shop-by-city-repartition": 2},
                        repartition=("shop-by-city-repartition",))  # fmt: skip


def facts(*operations):
    return TopicFacts(0, 2, 1, 1, 0, frozenset(operations))


def test_an_application_runs_without_the_right_to_delete_records():
    topics = {"orders": facts("DESCRIBE"), "shop-by-city-repartition": facts("READ", "WRITE", "DESCRIBE")}
    missing = missing_topic_rights(SHOP, topics)
    assert missing == [
        MissingRight("READ", "topic", "orders"), MissingRight("DELETE", "topic", "shop-by-city-repartition")
    ]  # fmt: skip
    assert [each.is_needed for each in missing] == [True, False]


def test_a_broker_that_says_nothing_of_rights_has_not_refused():
    for silent in (set(), {31}, None):
        assert operations_of(silent) is None
    assert missing_topic_rights(SHOP, {"orders": TopicFacts(0, 2, 1, 1, 0, operations_of(set()))}) == []


def test_a_policy_for_all_topics_is_no_refusal_of_compaction():
    def asks_for_copies(settings):
        return KafkaError.POLICY_VIOLATION, "3 copies, please"

    def knows_deletion_alone(settings):
        return (KafkaError.INVALID_CONFIG, "") if settings.get("cleanup.policy") == "compact" else (0, "")

    assert compaction_refusal(asks_for_copies) is None
    assert compaction_refusal(lambda settings: (0, "")) is None
    assert compaction_refusal(lambda settings: (KafkaError.TOPIC_AUTHORIZATION_FAILED, "no")) is None
    assert compaction_refusal(knows_deletion_alone)


def test_a_start_asks_for_as_many_copies_as_it_makes():
    builder = StreamsBuilder()
    builder.stream("orders").to("copies")
    config = StreamsConfig({"application.id": "shop", "bootstrap.servers": "b:9092", "replication.factor": 3})
    assert needs_of(builder.build(), config, None).replication == 3


def test_settings_that_a_broker_hides_are_left_out():
    answer = [SimpleNamespace(name=name, value=value) for name, value in (
        ("default.replication.factor", None), ("min.insync.replicas", ""), ("message.max.bytes", "2000000"),
    )]  # fmt: skip
    assert [each.name for each in broker_rules(shown(answer), 3, SHOP)] == ["message.max.bytes"]
