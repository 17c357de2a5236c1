"""Random functions and windows of a case, fitting the types that they get."""

from __future__ import annotations

from typing import Any

from dice import Dice

__all__ = ["RandomFunctions"]

Spec = dict[str, Any]


class RandomFunctions:
    """What the operators of a random topology are given."""

    def __init__(self, dice: Dice) -> None:
        self.dice = dice

    def predicate(self, key: str, value: str) -> Spec:
        dice = self.dice
        match dice.number(6):
            case 0:
                return {"name": "value_not_null"}
            case 1:
                return {"name": "key_in", "keys": ["a", "b"] if key == "string" else []}
            case 2:
                if value == "long":
                    return {"name": "value_gt", "n": dice.number(12)}
                return {"name": "value_length_gt", "n": 1 + dice.number(4)}
            case 3:
                return {"name": "not", "fn": {"name": "measure_mod", "m": 3, "r": dice.number(3)}}
            case _:
                modulus = 2 + dice.number(3)
                return {"name": "measure_mod", "m": modulus, "r": dice.number(modulus)}

    def value_function(self, key: str, value: str) -> Spec:
        dice = self.dice
        if dice.maybe(0.12):
            return {"name": "null_if", "fn": self.predicate(key, value)}
        if dice.maybe(0.08):
            return {"name": "null_to", "value": 7 if value == "long" else "none"}
        if value == "long":
            return dice.one(
                {"name": "add", "n": 1 + dice.number(5)},
                {"name": "mul", "n": 2},
                {"name": "mod", "n": 7},
                {"name": "to_string"},
                {"name": "measure"},
            )
        return dice.one(
            {"name": "uppercase"},
            {"name": "append", "s": "!"},
            {"name": "prefix_key"},
            {"name": "reverse"},
            {"name": "length"},
            {"name": "trunc", "n": 3 + dice.number(5)},
            {"name": "to_string"},
        )

    def key_function(self) -> Spec:
        return self.dice.one(
            {"name": "first_char"},
            {"name": "bucket", "n": 2 + self.dice.number(3)},
            {"name": "key_append", "s": "1"},
            {"name": "key_upper"},
        )

    def joiner(self, *, with_key: bool) -> Spec:
        if with_key and self.dice.maybe(0.25):
            return {"name": "key_pair"}
        return self.dice.one(
            {"name": "pair"},
            {"name": "sum_measure"},
            {"name": "pair_or_null", "m": 4},
            {"name": "left"},
            {"name": "right"},
        )

    def window(self, families: frozenset[str]) -> Spec:
        dice = self.dice
        size, grace = (2 + dice.number(8)) * 1000, dice.one(0, 1000, 5000, 20_000)
        hopping = {"advance_ms": max(500, size // (2 + dice.number(3)) // 500 * 500)}
        kinds = ["tumbling", "hopping", "unlimited"]
        kinds += ["sliding"] * 2 * ("sliding" in families) + ["session"] * 2 * ("session" in families)
        match dice.of(kinds):
            case "hopping":
                return {"type": "hopping", "size_ms": size, **hopping, "grace_ms": grace}
            case "sliding":
                return {"type": "sliding", "size_ms": size, "grace_ms": grace}
            case "session":
                return {"type": "session", "gap_ms": (1 + dice.number(4)) * 1000, "grace_ms": grace}
            case "unlimited":
                return {"type": "unlimited", "start_ms": dice.number(20) * 1000}
            case _:
                return {"type": "tumbling", "size_ms": size, "grace_ms": grace}
