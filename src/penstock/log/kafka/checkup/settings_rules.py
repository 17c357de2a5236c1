"""Settings of brokers and topics that lose data, or that an application cannot run with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.base.check_result import CheckResult
from penstock.log.application_needs import ApplicationNeeds

__all__ = ["broker_rules", "topic_rules"]

_DAY_MS = 24 * 3600 * 1000
_SAFE_COPIES = 3
# The harmful value, whether an application runs with it, and what to do.
_SWITCHES = {
    "unclean.leader.election.enable": (
        "true",
        True,
        "A broker that lacks records may become the leader, and confirmed records are lost: set it to false.",
    ),
    "auto.create.topics.enable": (
        "true",
        True,
        "A topic whose name is misspelt is created by the first client that asks for it: set it to false.",
    ),
    "log.cleaner.enable": (
        "false",
        False,
        "Nothing is compacted: changelogs and the ledger grow without end. Set it to true.",
    ),
    "delete.topic.enable": (
        "false",
        True,
        "`penstock app reset` cannot delete the application's topics: set it to true.",
    ),
}


def broker_rules(settings: Mapping[str, str], brokers: int, needs: ApplicationNeeds) -> Iterator[CheckResult]:
    """Check the settings of a broker; those that it does not show are left out.

    Args:
        settings: Names and values.
        brokers: The number of brokers of the cluster.
        needs: The application's needs, or the defaults of one.

    >>> [each.verdict for each in broker_rules({"log.cleaner.enable": "false"}, 3, ApplicationNeeds("shop"))]
    ['missing']
    """
    if "default.replication.factor" in settings:
        copies = int(settings["default.replication.factor"])
        yield _copies("default.replication.factor", copies, brokers)
        yield from _in_sync(settings, copies if needs.replication < 0 else needs.replication)
    yield from _turned_on(settings)
    yield from _times(settings, needs)
    if "message.max.bytes" in settings:
        most = int(settings["message.max.bytes"])
        too_small = most < needs.request_bytes
        remedy = (
            f"A batch of the application may have {needs.request_bytes:,} bytes (producer.max.request.size): raise "
            "message.max.bytes, or set max.message.bytes of its topics."
        )
        yield CheckResult("message.max.bytes", f"{most:,}", ok=True, remedy=remedy if too_small else "")
    for name in ("transaction.state.log", "offsets.topic"):
        if f"{name}.replication.factor" in settings:
            yield _copies(f"{name}.replication.factor", int(settings[f"{name}.replication.factor"]), brokers)
    if "transaction.state.log.min.isr" in settings and "transaction.state.log.replication.factor" in settings:
        least = int(settings["transaction.state.log.min.isr"])
        copies = int(settings["transaction.state.log.replication.factor"])
        yield CheckResult(
            "transaction.state.log.min.isr", str(least), ok=least <= copies,
            remedy="" if least <= copies else f"No transaction can begin: the topic has {copies} copies. Lower it.",
        )  # fmt: skip


def _copies(name: str, copies: int, brokers: int) -> CheckResult:
    found = f"{copies}, of {brokers} broker{'s' if brokers > 1 else ''}"
    if copies == 1:
        remedy = "The loss of one disk loses data: have three brokers or more, and 3 copies."
    elif copies < _SAFE_COPIES:
        remedy = "While one broker restarts, the loss of another loses data, or stops the application: have 3 copies."
    else:
        remedy = ""
    return CheckResult(name, found, ok=True, remedy=remedy)


def _in_sync(settings: Mapping[str, str], copies: int) -> Iterator[CheckResult]:
    if "min.insync.replicas" not in settings:
        return
    least = int(settings["min.insync.replicas"])
    remedy = ""
    if least > copies:
        remedy = (
            f"No record can be written with acks=all to a topic with {copies} copies: lower it, or have more copies."
        )
    elif least == copies > 1:
        remedy = "One broker that restarts stops all writes: have one copy more than min.insync.replicas."
    elif least == 1 < copies:
        remedy = "A record that one broker alone has is confirmed, and lost with it: set it to 2."
    found = f"{least}, of {copies} cop{'ies' if copies > 1 else 'y'}"
    yield CheckResult("min.insync.replicas", found, ok=least <= copies, remedy=remedy)


def _turned_on(settings: Mapping[str, str]) -> Iterator[CheckResult]:
    for name, (harmful, is_bearable, remedy) in _SWITCHES.items():
        if name in settings:
            is_harmful = settings[name].lower() == harmful
            ok = is_bearable or not is_harmful
            yield CheckResult(name, settings[name], ok=ok, remedy=remedy if is_harmful else "")
    name = "group.coordinator.rebalance.protocols"
    if name in settings:
        protocols = {each.strip().lower() for each in settings[name].split(",")}
        remedy = (
            "One instance of an application runs at a time; for several that share its tasks add streams."
            if "streams" not in protocols
            else ""
        )
        yield CheckResult(name, settings[name], ok=True, remedy=remedy)


def _times(settings: Mapping[str, str], needs: ApplicationNeeds) -> Iterator[CheckResult]:
    name = "transaction.max.timeout.ms"
    if name in settings:
        enough = int(settings[name]) >= needs.transaction_timeout_ms
        remedy = f"Set producer.transaction.timeout.ms, now {needs.transaction_timeout_ms}, to no more than it."
        yield CheckResult(name, settings[name], ok=enough, remedy="" if enough else remedy)
    name = "offsets.retention.minutes"
    if name in settings:
        is_short = int(settings[name]) < 24 * 60
        remedy = "An application that is stopped for longer loses its place: set it to a week (10080) or more."
        yield CheckResult(name, settings[name], ok=True, remedy=remedy if is_short else "")
    name = "transactional.id.expiration.ms"
    if name in settings:
        is_short = int(settings[name]) < _DAY_MS
        remedy = "Producers that write nothing for longer are forgotten: set it to a day (86400000) or more."
        yield CheckResult(name, settings[name], ok=True, remedy=remedy if is_short else "")


def topic_rules(
    name: str, settings: Mapping[str, str], copies: int, needs: ApplicationNeeds
) -> Iterator[tuple[bool, str]]:
    """Yield what is wrong with the settings of an application's topic: whether it can run with them, and what to do.

    >>> shop = ApplicationNeeds("shop", compacted=("shop-counts-changelog",))
    >>> list(topic_rules("shop-counts-changelog", {"cleanup.policy": "delete"}, 3, shop))
    [(False, 'cleanup.policy is delete, and the store is lost with its oldest records: set it to compact.')]
    """
    policy = settings.get("cleanup.policy", "")
    if name in needs.compacted and policy and "compact" not in policy:
        yield False, f"cleanup.policy is {policy}, and the store is lost with its oldest records: set it to compact."
    if name in needs.repartition and policy:
        if "compact" in policy:
            yield False, f"cleanup.policy is {policy}, and records of equal keys are lost: set it to delete."
        elif (kept_ms := int(settings.get("retention.ms", -1))) >= 0:
            yield True, f"retention.ms is {kept_ms}, and records that wait for longer are lost: set it to -1."
    if name in needs.sources and "delete" in policy:
        kept_ms = int(settings.get("retention.ms", -1))
        if 0 <= kept_ms < _DAY_MS:
            hours = kept_ms / 3_600_000
            yield True, f"retention.ms is {kept_ms}: an application that is stopped for {hours:.3g} h loses records."
        if (kept_bytes := int(settings.get("retention.bytes", -1))) >= 0:
            yield True, f"retention.bytes is {kept_bytes}: an application that falls behind by more loses records."
    if settings.get("unclean.leader.election.enable") == "true":
        yield True, "unclean.leader.election.enable is true, and confirmed records may be lost: set it to false."
    least = int(settings.get("min.insync.replicas", 1))
    if copies and least > copies:
        yield False, f"min.insync.replicas is {least} and there are {copies} copies: no record can be written."
