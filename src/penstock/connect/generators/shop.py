"""Users, items and orders: two tables, and a stream that refers to both."""

from __future__ import annotations

import json
from collections.abc import Iterator

from penstock.connect.generators.base import Generated, GeneratorSettings, event_times

__all__ = ["shop"]

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
        yield _user(f"u{number:05d}", rng.choice(_FIRST), rng.choice(_LAST), rng.choice(_CITIES), first)
    for number in range(items):
        item = f"i{number:04d}"
        kind = f"{rng.choice(('small', 'plain', 'blue', 'old', 'good'))} {rng.choice(_KINDS)}"
        value = {"item": item, "name": kind, "price_cents": rng.randrange(100, 20_000)}
        yield Generated("items", item, json.dumps(value), first)
    yield from settings.limit(_orders(settings, first, users, items))


def _user(user: str, first_name: str, family: str, city: str, when: int) -> Generated:
    value = {"user": user, "name": f"{first_name} {family}", "city": city}
    return Generated("users", user, json.dumps(value), when)


def _orders(settings: GeneratorSettings, first: int, users: int, items: int) -> Iterator[Generated]:
    rng = settings.random("orders")
    for number, when in enumerate(event_times(rng, first, settings.rate)):
        user = f"u{min(int(rng.paretovariate(0.9)) - 1, users - 1):05d}"
        if number and rng.random() < 0.01:
            yield _user(user, rng.choice(_FIRST), rng.choice(_LAST), rng.choice(_CITIES), when)
            continue
        value = {
            "order": number,
            "user": user,
            "item": f"i{min(int(rng.paretovariate(0.7)) - 1, items - 1):04d}",
            "quantity": rng.choice((1, 1, 1, 2, 2, 3, 5)),
        }
        yield Generated("orders", user, json.dumps(value), when)
