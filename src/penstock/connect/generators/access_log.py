"""Lines of an nginx access log in the combined format."""

from __future__ import annotations

import functools
import itertools
import random
import time
from collections.abc import Iterator
from typing import TypeVar

from penstock.connect.generators.base import Generated, GeneratorSettings, event_times

__all__ = ["access_log"]

T = TypeVar("T")

_WINDOWS = "Mozilla/5.0 (Windows NT 10.0; Win64; x64)"
_MAC = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7)"
_WEBKIT = "AppleWebKit/537.36 (KHTML, like Gecko)"
_SAFARI = "AppleWebKit/605.1.15 (KHTML, like Gecko)"
# User agents, each with its share of the visitors.
_AGENTS: tuple[tuple[int, str], ...] = (
    (230, f"{_WINDOWS} {_WEBKIT} Chrome/129.0.0.0 Safari/537.36"),
    (60, f"{_WINDOWS} {_WEBKIT} Chrome/129.0.0.0 Safari/537.36 Edg/129.0.0.0"),
    (40, "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:131.0) Gecko/20100101 Firefox/131.0"),
    (80, f"{_MAC} {_SAFARI} Version/17.6 Safari/605.1.15"),
    (55, f"{_MAC} {_WEBKIT} Chrome/129.0.0.0 Safari/537.36"),
    (190, f"Mozilla/5.0 (iPhone; CPU iPhone OS 17_6 like Mac OS X) {_SAFARI} Version/17.6 Mobile/15E148 Safari/604.1"),
    (30, f"Mozilla/5.0 (iPad; CPU OS 17_6 like Mac OS X) {_SAFARI} Version/17.6 Mobile/15E148 Safari/604.1"),
    (170, f"Mozilla/5.0 (Linux; Android 10; K) {_WEBKIT} Chrome/129.0.0.0 Mobile Safari/537.36"),
    (45, f"Mozilla/5.0 (Linux; Android 14; SM-S918B) {_WEBKIT} SamsungBrowser/25.0 Chrome/121.0 Mobile Safari/537.36"),
    (20, f"Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) {_WEBKIT} Chrome/128.0.0.0 Safari/537.36"),
    (15, "Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:131.0) Gecko/20100101 Firefox/131.0"),
    (15, f"Mozilla/5.0 (X11; Linux x86_64) {_WEBKIT} Chrome/129.0.0.0 Safari/537.36"),
    (25, "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"),
    (15, "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)"),
    (10, "curl/8.9.1"),
)  # fmt: skip
_STATUSES = ((820, 200), (25, 204), (40, 301), (50, 304), (12, 403), (70, 404), (8, 429), (12, 500), (6, 502), (3, 503))
_METHODS = ((900, "GET"), (75, "POST"), (15, "HEAD"), (6, "PUT"), (4, "DELETE"))
_SECTIONS = ("garden", "kitchen", "books", "music", "toys", "tools", "outdoor", "office")
_REFERRERS = ("-", "-", "https://www.google.com/", "https://duckduckgo.com/", "https://news.example.org/today",
              "https://shop.example.com/")  # fmt: skip
_VISITORS = 20_000


def access_log(
    settings: GeneratorSettings, *, bad_share: float = 0.002, topic: str = "access_log"
) -> Iterator[Generated]:
    """Generate lines of nginx; a visitor keeps address and browser, and a few visitors cause most of the hits.

    >>> line = next(access_log(GeneratorSettings(seed=7, start_ms=1_790_000_000_000, count=1))).value
    >>> line.count('"'), "[21/Sep/2026:" in line
    (6, True)

    Args:
        settings: Seed, count, rate, start and disorder.
        bad_share: The share of malformed lines: cut short, or garbage of scanners.
        topic: The topic of the records.
    """
    return settings.limit(_lines(settings, bad_share, topic))


def _lines(settings: GeneratorSettings, bad_share: float, topic: str) -> Iterator[Generated]:
    rng = settings.random("access_log")
    statuses, methods = _picker(rng, _STATUSES), _picker(rng, _METHODS)
    stamp_second, stamp = -1, ""
    for when in event_times(rng, settings.first_ms, settings.rate):
        if when // 1000 != stamp_second:  # nginx logs whole seconds
            stamp_second = when // 1000
            stamp = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(stamp_second))
        visitor = min(int(rng.paretovariate(0.6)), _VISITORS)
        address, agent = _visitor(visitor)
        status = next(statuses)
        size = 0 if status in (204, 304) else int(rng.lognormvariate(8.5, 1.2))
        request = f"{next(methods)} {_path(rng)} HTTP/{rng.choice(('1.1', '1.1', '2.0'))}"
        line = f'{address} - {_user(rng)} [{stamp}] "{request}" {status} {size} "{rng.choice(_REFERRERS)}" "{agent}"'
        if rng.random() < bad_share:
            line = _spoiled(rng, line)
        yield Generated(topic, None, line, when)


def _picker(rng: random.Random, shares: tuple[tuple[int, T], ...]) -> Iterator[T]:
    """Yield endless choices by share, drawn by the thousand, which is five times as fast."""
    weights = list(itertools.accumulate(share for share, _ in shares))
    values = [value for _, value in shares]
    while True:
        yield from rng.choices(values, cum_weights=weights, k=1000)


@functools.lru_cache(maxsize=_VISITORS)
def _visitor(number: int) -> tuple[str, str]:
    own = random.Random(number)  # noqa: S311 - the same visitor has the same address and browser in every run
    first = own.choice((24, 31, 46, 62, 77, 81, 84, 87, 91, 93, 109, 151, 178, 188, 212, 213))
    if own.random() < 0.12:
        address = f"2a02:{own.randrange(65536):x}:{own.randrange(65536):x}::{own.randrange(1, 65536):x}"
    else:
        address = f"{first}.{own.randrange(256)}.{own.randrange(256)}.{own.randrange(1, 255)}"
    weights = [share for share, _ in _AGENTS]
    return address, own.choices([agent for _, agent in _AGENTS], weights)[0]


def _user(rng: random.Random) -> str:
    return "-" if rng.random() < 0.97 else rng.choice(("ada", "grace", "linus", "barbara"))


def _path(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.25:
        return "/"
    if kind < 0.70:
        return f"/{rng.choice(_SECTIONS)}/item-{min(int(rng.paretovariate(0.8)), 4000):04d}"
    if kind < 0.80:
        return f"/search?q={rng.choice(_SECTIONS)}&page={rng.randrange(1, 6)}"
    if kind < 0.92:
        return f"/static/{rng.choice(('app', 'vendor', 'theme'))}.{rng.choice(('js', 'css'))}"
    return rng.choice(("/cart", "/checkout", "/account", "/api/v1/stock", "/favicon.ico", "/robots.txt"))


def _spoiled(rng: random.Random, line: str) -> str:
    kind = rng.randrange(3)
    if kind == 0:
        return line[: rng.randrange(5, max(6, line.index("]")))]
    if kind == 1:
        return "\\x16\\x03\\x01\\x02\\x00\\x01\\x00\\x01\\xFC\\x03\\x03"
    return line.replace('"', "'")
