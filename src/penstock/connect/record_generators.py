"""Data generators: seeded, endless or counted, in constant memory, with the standard library alone."""

from __future__ import annotations

import functools
import heapq
import itertools
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from penstock.base.clock import unix_ms
from penstock.errors import ConfigError

__all__ = ["Generated", "GeneratorSettings", "access_log", "clicks", "paced", "shop"]


class Generated(NamedTuple):
    """A generated record with its topic."""

    topic: str
    key: str | None
    value: str
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class GeneratorSettings:
    """The settings of a generator.

    Attributes:
        seed: The same seed generates the same records.
        count: The number of records; None is endless.
        rate: Records per second of event time.
        start_ms: The time of the first event; None is now.
        disorder_ms: The largest delay of a record behind one with a later time.
    """

    seed: int = 0
    count: int | None = None
    rate: float = 100.0
    start_ms: int | None = None
    disorder_ms: int = 0

    def __post_init__(self) -> None:
        if self.rate <= 0:
            raise ConfigError(f"rate is {self.rate}; it must be above 0", hint="It is records per second.")
        if self.count is not None and self.count < 0:
            raise ConfigError(f"count is {self.count}; it must not be negative", hint="Leave it out for no end.")
        if self.disorder_ms < 0:
            raise ConfigError(f"disorder is {self.disorder_ms} ms; it must not be negative")

    @property
    def first_ms(self) -> int:
        """The first event's time."""
        return unix_ms() if self.start_ms is None else self.start_ms

    def random(self, salt: str) -> random.Random:
        """Make a source of random numbers for one generator."""
        return random.Random(f"{salt}:{self.seed}")  # noqa: S311 - test data, not secrets

    def limit(self, records: Iterable[Generated]) -> Iterator[Generated]:
        """Disorder the records, and stop at ``count``."""
        untidy = disordered(records, self.disorder_ms, self.random("disorder"))
        return itertools.islice(untidy, self.count)


def event_times(rng: random.Random, first_ms: int, rate: float) -> Iterator[int]:
    """Yield the times of independent events (a Poisson process), on average ``rate`` a second."""
    now = float(first_ms)
    while True:
        yield int(now)
        now += rng.expovariate(rate) * 1000


def disordered(records: Iterable[Generated], disorder_ms: int, rng: random.Random) -> Iterator[Generated]:
    """Delay each record by up to ``disorder_ms`` of event time; holds the records of that time in memory.

    >>> times = [Generated("t", None, "", ms) for ms in range(0, 1000, 100)]
    >>> out = [r.timestamp_ms for r in disordered(times, 300, random.Random(1))]
    >>> sorted(out) == [r.timestamp_ms for r in times], max(a - b for a, b in itertools.pairwise(out)) <= 300
    (True, True)
    """
    if disorder_ms <= 0:
        yield from records
        return
    waiting: list[tuple[float, int, Generated]] = []
    for number, record in enumerate(records):
        heapq.heappush(waiting, (record.timestamp_ms + rng.random() * disorder_ms, number, record))
        while waiting[0][0] <= record.timestamp_ms:
            yield heapq.heappop(waiting)[2]
    while waiting:
        yield heapq.heappop(waiting)[2]


def paced(
    records: Iterable[Generated],
    rate: float,
    *,
    stopped: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[list[Generated]]:
    """Yield records at ``rate`` a second of real time, in about twenty groups a second, until ``stopped()``."""
    source = iter(records)
    started = clock()
    sent = 0
    while not stopped():
        due = int((clock() - started) * rate) + 1 - sent
        group = list(itertools.islice(source, max(due, 0)))
        if due > 0 and not group:
            return
        if group:
            yield group
            sent += len(group)
        sleep(max(0.05, 1 / rate) if rate < 20 else 0.05)


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


_CITIES = (
    "Amsterdam",
    "Athens",
    "Berlin",
    "Bilbao",
    "Bologna",
    "Cork",
    "Ghent",
    "Graz",
    "Lyon",
    "Porto",
    "Riga",
    "Turku",
)
_FIRST = (
    "Ada",
    "Alan",
    "Barbara",
    "Edsger",
    "Frances",
    "Grace",
    "Jean",
    "John",
    "Katherine",
    "Margaret",
    "Niklaus",
    "Tony",
)
_LAST = ("Allen", "Backus", "Bartik", "Dijkstra", "Hamilton", "Hoare", "Hopper", "Johnson", "Liskov", "Turing", "Wirth")
_KINDS = ("chair", "desk", "kettle", "lamp", "notebook", "pen", "radio", "shelf", "teapot", "watch")


def shop(settings: GeneratorSettings, *, users: int = 100, items: int = 50) -> Iterator[Generated]:
    """Generate all users and items (topics ``users``, ``items``), then orders (topic ``orders``).

    Sometimes a user moves. Values are JSON. An order has its user's key and names its item.
    ``count`` counts orders and later changes only.

    >>> [r.topic for r in shop(GeneratorSettings(start_ms=0, count=2), users=1, items=1)]
    ['users', 'items', 'orders', 'orders']
    """
    first = settings.first_ms
    rng = settings.random("shop")
    for number in range(users):
        yield _shop_user(f"u{number:05d}", rng.choice(_FIRST), rng.choice(_LAST), rng.choice(_CITIES), first)
    for number in range(items):
        item = f"i{number:04d}"
        kind = f"{rng.choice(('small', 'plain', 'blue', 'old', 'good'))} {rng.choice(_KINDS)}"
        value = {"item": item, "name": kind, "price_cents": rng.randrange(100, 20_000)}
        yield Generated("items", item, json.dumps(value), first)
    yield from settings.limit(_orders(settings, first, users, items))


def _shop_user(user: str, first_name: str, family: str, city: str, when: int) -> Generated:
    value = {"user": user, "name": f"{first_name} {family}", "city": city}
    return Generated("users", user, json.dumps(value), when)


def _orders(settings: GeneratorSettings, first: int, users: int, items: int) -> Iterator[Generated]:
    rng = settings.random("orders")
    for number, when in enumerate(event_times(rng, first, settings.rate)):
        user = f"u{min(int(rng.paretovariate(0.9)) - 1, users - 1):05d}"
        if number and rng.random() < 0.01:
            yield _shop_user(user, rng.choice(_FIRST), rng.choice(_LAST), rng.choice(_CITIES), when)
            continue
        value = {
            "order": number,
            "user": user,
            "item": f"i{min(int(rng.paretovariate(0.7)) - 1, items - 1):04d}",
            "quantity": rng.choice((1, 1, 1, 2, 2, 3, 5)),
        }
        yield Generated("orders", user, json.dumps(value), when)
