"""The first page: health in one look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from penstock.console.batch_line import UNKNOWN, BatchLine
from penstock.console.hotspots import findings_of, sentence_of
from penstock.console.web.page import Visit
from penstock.console.web.pages.application_pages import failure_of, head_of

__all__ = ["overview"]

_POINTS = 60


def overview(visit: Visit) -> Mapping[str, Any]:
    """Return the figures of the application, where to look, and the other applications of the log."""
    picture, facts = head_of(visit)
    lines, threads = picture.lines[-240:], picture.thread_times()
    others = []
    for name in visit.site.applications.names():
        each = visit.site.application(name).picture() if name != picture.application else picture
        others.append({"name": name, "picture": each})
    return {
        **facts,
        "findings": findings_of(picture),
        "rates_in": _per_second(lines, "records_in"),
        "rates_out": _per_second(lines, "records_out"),
        "lags": [lag for _, lag in picture.get("lags", ())][-_POINTS:]
        or [None if line.lag == UNKNOWN else line.lag for line in lines[-_POINTS:]],
        "threads": len(threads),
        "busy": sum(each.busy for each in threads) / len(threads) if threads else 0.0,
        "sentence": sentence_of(picture),
        "times": [line.seconds for line in lines[-_POINTS:]],
        "drops": [line.dropped for line in lines[-_POINTS:]],
        "others": others,
        "failure": failure_of(visit, picture),
        "has_group": visit.site.log is not None and visit.application_name in visit.site.log.groups(),
    }


def _per_second(lines: Sequence[BatchLine], name: str) -> list[float | None]:
    """Return a count a second between one batch and the next, for the last ones."""
    rates: list[float | None] = []
    for before, line in pairwise(lines):
        seconds = max((line.end_ms - before.end_ms) / 1000, 0.05)
        rates.append(getattr(line, name) / seconds)
    return rates[-_POINTS:]
