"""The topics of an application: whether they exist, with the partitions, copies and settings that it needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

from penstock.base.check_result import CheckResult
from penstock.base.terminal.human_numbers import counted
from penstock.log.kafka.checkup.settings_rules import topic_rules

if TYPE_CHECKING:
    from penstock.log.application_needs import ApplicationNeeds
    from penstock.log.kafka.checkup.inquiry import TopicFacts

__all__ = ["check_topics"]


def check_topics(
    needs: ApplicationNeeds, topics: Mapping[str, TopicFacts], settings: Mapping[str, Mapping[str, str]]
) -> Iterator[CheckResult]:
    """Check the topics of an application.

    Args:
        needs: What it needs.
        topics: The facts of its topics.
        settings: The settings of those that this user may see the settings of.
    """
    for name in dict.fromkeys((*needs.sources, *needs.sinks, *needs.internal, *topics)):
        facts = topics.get(name)
        if facts is not None and facts.error == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            continue  # see the rights
        title = f"topic {name}"
        if facts is None or facts.error:
            yield _absent(title, name, needs)
            continue
        problems = list(topic_rules(name, settings.get(name, {}), facts.replicas, needs))
        problems += _of_partitions(name, facts, needs)
        copies = f"{facts.replicas} cop{'y' if facts.replicas == 1 else 'ies'}"
        found = f"{_role(name, needs)}; {counted(facts.partitions, 'partition')}, {copies}"
        if name not in settings:
            found += ", settings not to be seen"
        remedy = " ".join(text for _, text in problems)
        yield CheckResult(title, found, ok=all(ok for ok, _ in problems), remedy=remedy)


def _of_partitions(name: str, facts: TopicFacts, needs: ApplicationNeeds) -> Iterator[tuple[bool, str]]:
    if facts.leaderless:
        text = f"{counted(facts.leaderless, 'partition')} without a leader: is a broker away that has the only copy?"
        yield False, text
    elif facts.in_sync < facts.replicas:
        yield True, "Not all copies are in sync: is a broker away, or slow?"
    wanted = needs.internal.get(name, 0)
    if wanted and facts.partitions != wanted:
        may_grow = name in needs.compacted and facts.partitions < wanted
        text = f"The topology needs {counted(wanted, 'partition')}: "
        yield may_grow, text + ("the start adds them." if may_grow else "reset the application, or use another id.")


def _absent(title: str, name: str, needs: ApplicationNeeds) -> CheckResult:
    if name not in needs.sources:
        return CheckResult(title, f"{_role(name, needs)}; the start creates it", ok=True)
    return CheckResult(title, "source; it does not exist", ok=False, remedy=f"Create it: penstock topics create {name}")


def _role(name: str, needs: ApplicationNeeds) -> str:
    roles = {
        "source": needs.sources,
        "sink": needs.sinks,
        "compacted topic": needs.compacted,
        "repartition topic": needs.repartition,
    }
    return " and ".join(role for role, names in roles.items() if name in names) or "own topic"
