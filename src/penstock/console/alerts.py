"""Alerts: conditions of an application to look at, each with what to do; their lines in the log, and a webhook."""

from __future__ import annotations

import json
import logging
import threading
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from penstock.base.clock import unix_ms
from penstock.base.log_lines import own_logger
from penstock.base.terminal.human_numbers import duration, time_of
from penstock.console.app_view import DIED, Picture
from penstock.metrics.prometheus import label_text

__all__ = ["NAMES", "RULES", "Alert", "AlertLog", "alert_lines", "alerts_of"]

NAMES = (
    "failed",
    "died",
    "stuck",
    "stuck task",
    "silent",
    "records lost",
    "retention overtakes",
    "lag grows",
    "drops",
    "skew",
    "slow batches",
    "clock",
    "state grows",
    "restarts",
    "new errors",
)
_STUCK_MS = 60_000
_STUCK_BATCHES = 10
_BEHIND_S = 60.0
_MARGIN = 0.1
_SKEW = 3.0
_BATCHES = 20
_DROPPED = 0.01
_LONG_TASK = 3.0
_AHEAD_MS = 3_600_000
_SILENT_MS = 30_000
_LEAST_ROWS = 1_000  # more than before: small stores grow fast
_GROWTH_PERCENT = 20
_HOLD_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Alert:
    """A condition that holds.

    Attributes:
        name: The rule, as in ``penstock_alert{name="stuck"}``.
        where: What it is about: a partition, a node, a task; empty for the application.
        what: What happened, with figures.
        do: What to do next.
        severity: "error" or "warning".
        since_ms: Since when it holds.
    """

    name: str
    where: str
    what: str
    do: str
    severity: str = "warning"
    since_ms: int = 0

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)

    def since(self, since_ms: int) -> Alert:
        """Return the alert with the time since when it holds."""
        return replace(self, since_ms=since_ms)


Rule = Callable[[Picture, int], list[Alert]]


def _failed(picture: Picture, now_ms: int) -> list[Alert]:  # noqa: ARG001 - the form of rules
    if picture.state not in ("PENDING_ERROR", "ERROR"):
        return []
    what, do = picture.get("failure") or ("the application ended with an error", "")
    return [Alert("failed", "", what, do or "The application's log has the whole error.", "error")]


def _died(picture: Picture, now_ms: int) -> list[Alert]:
    if picture.state != DIED:
        return []
    written_ms = picture.get("written_ms", now_ms)
    return [
        Alert(
            "died",
            "",
            f"its process is gone and has not ended it: it was {picture.get('was')}, and its last figures are of "
            f"{time_of(written_ms, short=True)}, {duration((now_ms - written_ms) / 1000)} ago",
            "Start it again: it continues where it was, and nothing is lost. The machine's log says whether it was "
            "killed, often for its memory.",
            "error",
            written_ms,
        )
    ]


def _stuck(picture: Picture, now_ms: int) -> list[Alert]:
    if picture.state != "RUNNING" or not picture.lag:
        return []
    last = picture.newest
    ended_ms = max(last.end_ms if last else 0, picture.get("started_ms", 0))
    allowed_ms = max(_STUCK_MS, _STUCK_BATCHES * picture.batch_seconds * 1000)
    silent_ms = now_ms - ended_ms
    if silent_ms <= allowed_ms:
        return []
    newest = "the last commit" if picture.is_continuous else f"batch {last.number:,} ended" if last else ""
    after = newest if last else "the start"
    phase = f": {picture.get('phase')}" if picture.get("phase") else ""
    worst = max(picture.partitions, key=lambda each: each.lag)
    where = f"all in {worst.name}" if worst.lag == picture.lag else f"{worst.lag:,} of them in {worst.name}"
    return [
        Alert(
            "stuck",
            "",
            f"{picture.lag:,} records wait ({where}), and nothing was committed for {duration(silent_ms / 1000)}, "
            f"since {after}{phase}",
            "Look at the application's log, for a thread that is in one step for long or a transaction that stays open."
            if picture.is_continuous
            else "Look at the application's log and at Spark's page for a task that runs long.",
            "error",
        )
    ]


def _stuck_tasks(picture: Picture, now_ms: int) -> list[Alert]:  # noqa: ARG001 - the form of rules
    return [
        Alert(
            "stuck task",
            step["task"],
            f"{step['what']}, and usually takes {duration(usual)}" if usual else str(step["what"]),
            "Look at the function that it calls, and at what this waits for; at the application's log, and at Spark's "
            "page for its stack.",
        )
        for step in picture.get("long_steps", ())
        if step["seconds"] > _LONG_TASK * (usual := picture.usual_seconds(step["task"]))
    ]


def _slow_batches(picture: Picture, now_ms: int) -> list[Alert]:  # noqa: ARG001 - the form of rules
    facts, last = picture.get("facts", {}), picture.lines[-_BATCHES:]
    interval_s = facts.get("interval_ms", 0) / 1000
    is_late = len(last) == _BATCHES and min(line.seconds for line in last) > interval_s > 0
    if not picture.is_in_batches or not is_late or not picture.lag or picture.trend.word != "grows":
        return []
    return [
        Alert(
            "slow batches",
            "",
            f"the last {_BATCHES} batches took longer than commit.interval.ms ({duration(interval_s)}), the median "
            f"{duration(picture.batch_seconds)}, and {picture.lag:,} records wait",
            "Find out where the time of a batch is spent, give it more cores, or raise commit.interval.ms.",
        )
    ]


def _silent(picture: Picture, now_ms: int) -> list[Alert]:
    silent_ms = now_ms - picture.get("written_ms", now_ms)
    if not picture.is_running or silent_ms <= _SILENT_MS:
        return []
    return [
        Alert(
            "silent",
            "",
            f"the application was {picture.state} and has written no figures for {duration(silent_ms / 1000)}",
            "Check whether its process is alive: it may have been killed, or its machine be gone.",
            "error",
        )
    ]


def _lag_grows(picture: Picture, now_ms: int) -> list[Alert]:  # noqa: ARG001 - the form of rules
    behind = picture.behind_seconds
    if behind is None or behind <= _BEHIND_S or picture.trend.word != "grows":
        return []
    worst = max(picture.partitions, key=lambda each: each.lag)
    return [
        Alert(
            "lag grows",
            worst.name,
            f"{picture.lag:,} records wait, the oldest since {duration(behind)}; "
            f"{picture.trend.per_second:,.0f} more each second",
            "Give it more cores or partitions, or find out where the time is spent: the overview shows it.",
        )
    ]


def _retention(picture: Picture, now_ms: int) -> list[Alert]:  # noqa: ARG001 - the form of rules
    alerts = [
        Alert(
            "records lost",
            name,
            f"{count:,} offsets were deleted by retention before they were read",
            "Raise retention.ms or retention.bytes of the topic; the records are gone.",
            "error",
        )
        for name, count in sorted(picture.get("lost", {}).items())
        if count
    ]
    alerts.extend(
        Alert(
            "retention overtakes",
            each.name,
            f"the next record is among the oldest {_MARGIN:.0%} of those that are kept, {each.lag:,} wait",
            "Raise retention.ms or retention.bytes of the topic before records are lost.",
        )
        for each in picture.partitions
        if each.lag and each.margin is not None and each.margin < _MARGIN and (each.seconds or 0) > _BEHIND_S
    )
    return alerts


def _skew(picture: Picture, now_ms: int) -> list[Alert]:  # noqa: ARG001 - the form of rules
    last = picture.lines[-_BATCHES:]
    if len(last) < _BATCHES or min(line.skew for line in last) <= _SKEW:
        return []
    looks, page = ("looks", "threads") if picture.is_continuous else ("batches", "batches")
    return [
        Alert(
            "skew",
            "",
            f"the slowest task took {picture.skew:.1f} times as long as the median one, for {_BATCHES} {looks}",
            f"Check whether a few keys have most of the records: the page of {page} names the task.",
        )
    ]


def _drops(picture: Picture, now_ms: int) -> list[Alert]:
    recent = [line for line in picture.lines if line.end_ms > now_ms - 300_000]
    records, dropped = sum(line.records_in for line in recent), sum(line.dropped for line in recent)
    if not records or dropped / records <= _DROPPED:
        return []
    reasons = sorted(picture.get("reasons", ()), key=lambda row: -row[2])
    where, why = (reasons[0][0], f", mostly: {reasons[0][1]}") if reasons else ("", "")
    return [
        Alert(
            "drops",
            where,
            f"{dropped:,} of {records:,} records ({dropped / records:.1%}) were dropped in five minutes{why}",
            "The page of errors has the reasons; set errors.dead.letter.queue.topic.name to keep such records.",
        )
    ]


def _clock(picture: Picture, now_ms: int) -> list[Alert]:
    stream_time = picture.get("stream_time_ms", -1)
    if stream_time <= now_ms + _AHEAD_MS:
        return []
    return [
        Alert(
            "clock",
            "",
            f"stream time is {time_of(stream_time, short=True)}, {duration((stream_time - now_ms) / 1000)} ahead of "
            "the clock: windows close early and later records count as late",
            "Find the record with the wrong timestamp; a timestamp extractor can refuse such records.",
        )
    ]


def _state_grows(picture: Picture, now_ms: int) -> list[Alert]:  # noqa: ARG001 - the form of rules
    percent = _set(picture, "state.growth.percent", _GROWTH_PERCENT)
    return [
        Alert(
            "state grows",
            store,
            f"{now:,} rows, {(now - before) / max(before, 1):.0%} more than an hour ago, and no row was removed",
            "Check whether its keys are unbounded, or whether stream time does not advance, so that no window closes; "
            "a store with a time to live, windows or a shorter retention bound it.",
        )
        for store, before, now in picture.get("growth", ())
        if percent and now - before >= max(_LEAST_ROWS, before * percent / 100)
    ]


def _restarts(picture: Picture, now_ms: int) -> list[Alert]:
    recent = [each for each in picture.get("restarts", ()) if each[0] > now_ms - _set(picture, "hold.ms", _HOLD_MS)]
    if not recent:
        return []
    times = "once" if len(recent) == 1 else f"{len(recent):,} times"
    return [
        Alert(
            "restarts",
            "",
            f"it has restarted {times}, the last time at {time_of(recent[-1][0], short=True)}: {recent[-1][1]}",
            "Nothing is lost by that, but it costs time: look in the application's log and in the machine's for a "
            "process that was killed, often for its memory.",
        )
    ]


def _new_errors(picture: Picture, now_ms: int) -> list[Alert]:
    since = now_ms - _set(picture, "hold.ms", _HOLD_MS)
    return [
        Alert(
            "new errors",
            f"{node} {kind}",
            f"{count:,} records failed in {node} with {kind}, for the first time at {time_of(first, short=True)}",
            "The page of errors has the newest such record; the handler has let it pass, so the application continues.",
        )
        for node, kind, count, first, _ in picture.get("error_kinds", ())
        if first > since
    ]


def _set(picture: Picture, name: str, default: int) -> int:
    """Return a setting ``penstock.alerts.<name>`` of the application."""
    return int(picture.get("facts", {}).get("alerts", {}).get(name, default))


RULES: tuple[Rule, ...] = (
    _failed, _died, _stuck, _stuck_tasks, _silent, _retention, _lag_grows, _drops, _skew, _slow_batches, _clock,
    _state_grows, _restarts, _new_errors,
)  # fmt: skip


def alerts_of(picture: Picture, now_ms: int | None = None) -> list[Alert]:
    """Return the alerts of an application, errors first.

    >>> alerts_of(Picture({"state": "RUNNING"}), 0)
    []
    """
    now = unix_ms() if now_ms is None else now_ms
    alerts = [alert for rule in RULES for alert in rule(picture, now)]
    return sorted(alerts, key=lambda alert: alert.severity != "error")


def alert_lines(application: str, alerts: Iterable[Mapping[str, Any]]) -> str:
    """Return the alerts in Prometheus' text format: 1 for each that holds, 0 for the others.

    >>> alert_lines("shop", [{"name": "died"}]).splitlines()[2:4]
    ['penstock_alert{application="shop",name="failed"} 0', 'penstock_alert{application="shop",name="died"} 1']
    """
    held = {alert["name"] for alert in alerts}
    shown = label_text(application)
    lines = [f'penstock_alert{{application="{shown}",name="{name}"}} {int(name in held)}' for name in NAMES]
    return "\n".join(["# HELP penstock_alert Whether an alert holds.", "# TYPE penstock_alert gauge", *lines, ""])


_log = own_logger("penstock.app")
_FIRST_MS = 120_000
_AT_ONCE = frozenset({"failed"})  # its process ends
_TIMEOUT_S = 5.0


class AlertLog:
    """The alerts of one application over time.

    An alert is logged when it has held for two minutes (a failure at once), again at doubled intervals, and once when
    it is over. The webhook hears of it at the first line and at the end, as JSON by POST.

    Args:
        application: The ``application.id``.
        webhook: The URL; None: no webhook.
    """

    def __init__(self, application: str, webhook: str | None = None) -> None:
        self._application, self._webhook = application, webhook
        self._since: dict[tuple[str, str], int] = {}
        self._next: dict[tuple[str, str], int] = {}
        self._said: dict[tuple[str, str], Alert] = {}

    def seen(self, alerts: Sequence[Alert], now_ms: int) -> list[Alert]:
        """Take the alerts that hold now; return them with the times since when they hold."""
        held = {(alert.name, alert.where): alert for alert in alerts}
        self._since = {key: self._since.get(key, now_ms) for key in held}
        dated = {key: alert.since(self._since[key]) for key, alert in held.items()}
        for key, alert in dated.items():
            first_ms = 0 if alert.name in _AT_ONCE else _FIRST_MS
            if now_ms >= self._next.setdefault(key, alert.since_ms + first_ms):
                self._next[key] = now_ms + 2 * (now_ms - alert.since_ms)
                self._say(key, alert)
        for key in [key for key in self._next if key not in held]:
            del self._next[key]
            if key in self._said:
                alert = self._said.pop(key)
                _log.info("%s: %s %s: recovered", self._application, alert.name, alert.where)
                self._send(alert, "recovered")
        return list(dated.values())

    def _say(self, key: tuple[str, str], alert: Alert) -> None:
        level = logging.ERROR if alert.severity == "error" else logging.WARNING
        where = f" {alert.where}" if alert.where else ""
        _log.log(level, "%s: %s%s: %s. %s", self._application, alert.name, where, alert.what, alert.do)
        if key not in self._said:
            self._send(alert, "firing")
        self._said[key] = alert

    def _send(self, alert: Alert, status: str) -> None:
        if self._webhook:
            body = {"application": self._application, "status": status, **alert.document()}
            is_daemon = alert.name not in _AT_ONCE  # it is sent although the process ends
            threading.Thread(
                target=_post, args=(self._webhook, body), name="penstock-webhook", daemon=is_daemon
            ).start()


def _post(url: str, body: dict[str, object]) -> None:
    request = urllib.request.Request(  # noqa: S310 - the scheme is checked where the setting is read
        url, json.dumps(body).encode(), {"content-type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S):  # noqa: S310 - as above
            pass
    except (OSError, ValueError) as error:
        where = urlsplit(url).hostname  # the path of such an address is often its secret
        _log.warning("the alert could not be sent to penstock.alerts.webhook at %s: %s", where, error)
