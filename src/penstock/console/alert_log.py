"""What is said about alerts outside of the page: lines in the log, and a webhook."""

from __future__ import annotations

import json
import logging
import threading
import urllib.request
from collections.abc import Sequence
from urllib.parse import urlsplit

from penstock.base.log_lines import own_logger
from penstock.console.alerts import Alert

__all__ = ["AlertLog"]

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
