"""What objects of a class cost: CPU time per record of bytes -> values and back, beside plain JSON.

python bench/typed_values.py --records 200000 > bench/results/typed_values.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import BaseModel

from penstock import Serdes
from penstock.serde import Column
from penstock.serde.column import bytes_column


@dataclass
class Hit:
    user: str
    page: str
    ms: int
    ok: bool
    price: float


class HitModel(BaseModel):
    user: str
    page: str
    ms: int
    ok: bool
    price: float


def cpu_us(run: Callable[[], object], records: int) -> float:
    """Return the CPU microseconds per record of the best of five runs."""
    best = float("inf")
    for _ in range(5):
        started = time.process_time()
        run()
        best = min(best, time.process_time() - started)
    return round(best / records * 1e6, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    records = parser.parse_args().records
    texts = [
        json.dumps({"user": f"u{n}", "page": "/a/b", "ms": n, "ok": n % 2 == 0, "price": n / 7}).encode()
        for n in range(records)
    ]
    data = bytes_column(texts)
    serdes = {"json": Serdes.json(), "dataclass": Serdes.of(Hit), "pydantic": Serdes.of(HitModel)}
    result = {}
    for name, serde in serdes.items():
        values = Column.of_items(serde.decode(data).items())
        result[name] = {
            "read_us": cpu_us(lambda serde=serde: serde.decode(data), records),
            "write_us": cpu_us(lambda serde=serde, values=values: serde.encode(values), records),
        }
    command = f"python bench/typed_values.py --records {records}"
    print(json.dumps({"command": command, "cpu_microseconds_per_record": result}, indent=2))


if __name__ == "__main__":
    main()
