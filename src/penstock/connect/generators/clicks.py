"""Click streams: visits of several pages, with pauses that form sessions."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator

from penstock.connect.generators.base import Generated, GeneratorSettings, event_times

__all__ = ["clicks"]

_PAGES = ("home", "search", "product", "cart", "checkout", "thanks", "help", "account")
_REGIONS = ("africa", "americas", "asia", "europe", "oceania")
# From each page the likely next ones.
_NEXT = {
    "home": ("search", "product", "product", "help"),
    "search": ("product", "product", "search"),
    "product": ("product", "cart", "search", "home"),
    "cart": ("checkout", "product", "home"),
    "checkout": ("thanks", "cart"),
    "thanks": ("home", "account"),
    "help": ("home", "search"),
    "account": ("home", "help"),
}


def clicks(settings: GeneratorSettings, *, users: int = 1000, topic: str = "clicks") -> Iterator[Generated]:
    """Generate page views keyed by user, with JSON values of page, region and the visit's number.

    A visit has about six views, some seconds apart, and users return later, so that session windows with a gap of about
    a minute have several sessions. Memory holds the current visits.

    >>> record = next(clicks(GeneratorSettings(seed=1, start_ms=0)))
    >>> record.topic, sorted(json.loads(record.value))
    ('clicks', ['page', 'region', 'user', 'visit'])
    """
    return settings.limit(_views(settings, users, topic))


def _views(settings: GeneratorSettings, users: int, topic: str) -> Iterator[Generated]:
    rng = settings.random("clicks")
    visits_at = event_times(rng, settings.first_ms, settings.rate / 6)
    next_visit = next(visits_at)
    under_way: list[tuple[int, int, int, str]] = []  # time of the next view, visit, user, page
    number = 0
    while True:
        while not under_way or next_visit <= under_way[0][0]:
            page = "home" if rng.random() < 0.7 else rng.choice(_PAGES)
            heapq.heappush(under_way, (next_visit, number, rng.randrange(users), page))
            number += 1
            next_visit = next(visits_at)
        when, visit, user, page = heapq.heappop(under_way)
        value = {"user": f"u{user:05d}", "page": page, "region": _REGIONS[user % len(_REGIONS)], "visit": visit}
        yield Generated(topic, f"u{user:05d}", json.dumps(value), when)
        if rng.random() > 1 / 6:
            pause = int(rng.lognormvariate(8.5, 0.8))  # five seconds in the middle
            heapq.heappush(under_way, (when + pause, visit, user, rng.choice(_NEXT[page])))
