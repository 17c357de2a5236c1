"""Access control lists of mirrored topics, copied as MirrorMaker copies them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.base.log_lines import own_logger
from penstock.connect.mirror.flows import Flow
from penstock.errors import LogError, LogUnavailableError
from penstock.log.acls import SecuredLog, TopicAcl
from penstock.log.base import TopicLog

__all__ = ["AclSync", "remote_acls"]

_log = own_logger(__name__)


def remote_acls(flow: Flow, rules: Iterable[TopicAcl]) -> list[TopicAcl]:
    """Return the rights to topics of the target that rights to topics of the source stand for.

    Nobody but the mirror may write there: the right to write is not copied, and the right to do everything becomes
    that to read.

    >>> from penstock.connect.mirror.flows import MirrorCluster
    >>> flow = Flow(MirrorCluster("west", "west:9092"), MirrorCluster("east", "east:9092"), {"topics": "orders"})
    >>> rules = [TopicAcl("orders", "User:ann", "*", each, "ALLOW") for each in ("WRITE", "ALL")]
    >>> [(each.topic, each.operation) for each in remote_acls(flow, rules)]
    [('west.orders', 'READ')]
    """
    topics, policy, acls = flow.topics, flow.policy, []
    for rule in rules:
        allows = rule.permission == "ALLOW"
        if (allows and rule.operation == "WRITE") or rule.topic == "*" or not topics.takes(rule.topic):
            continue
        operation = "READ" if allows and rule.operation == "ALL" else rule.operation
        acls.append(replace(rule, topic=policy.remote_topic(flow.source.alias, rule.topic), operation=operation))
    return acls


class AclSync:
    """The copying of one flow's access control lists. Rights that are taken away in the source stay in the target.

    Args:
        flow: The flow.
        source: The source's log.
        target: The target's log.
    """

    def __init__(self, flow: Flow, source: TopicLog, target: TopicLog) -> None:
        self._flow, self._source, self._target = flow, source, target
        self._there: set[TopicAcl] = set()
        self._refused = ""

    def sync(self) -> int:
        """Add what is missing in the target, and return how many rights that is.

        A cluster without access control, or one that does not let the mirror see or change it, is noted in the log
        once, and ends nothing.

        Raises:
            LogUnavailableError: A cluster does not answer.
        """
        if not (isinstance(self._source, SecuredLog) and isinstance(self._target, SecuredLog)):
            return 0
        try:
            rules = self._source.topic_acls()
            missing = [rule for rule in remote_acls(self._flow, rules or ()) if rule not in self._there]
            self._target.add_topic_acls(missing)
        except LogUnavailableError:
            raise
        except LogError as error:
            if error.message != self._refused:
                flow = f"{self._flow.source.alias}->{self._flow.target.alias}"
                _log.warning("%s does not copy access control lists (sync.topic.acls.enabled): %s", flow, error)
            self._refused = error.message
            return 0
        self._there.update(missing)
        return len(missing)
