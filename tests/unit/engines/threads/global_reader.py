"""A process with a copy of the global stores: ``python global_reader.py LOG ROOT``; it prints what it sees.

Prints ``writer`` or ``reader`` when it has restored, and then each new value of the key "k" that it finds.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from global_table import globals_app

from penstock.engines.threads.loop.global_state import FollowedCopy
from penstock.log.open import open_log
from penstock.runtime.global_stores import GlobalViews
from penstock.runtime.sensor import Sensor


def value_of(views: GlobalViews, app: Any, key: str) -> str | None:
    """The value that the global table has for a key."""
    found = views.view(app.topology.stores["names"]).get(key)
    return None if found is None else found.value


def main() -> None:
    url, root = sys.argv[1:]
    with open_log(url) as log:
        app = globals_app(log, root)
        copy = FollowedCopy(app, Sensor(), lambda: 0)
        followed = copy.restore(log)
        print("writer" if followed else "reader", flush=True)
        fetcher = log.fetcher()
        fetcher.assign(followed)
        seen = None
        while True:
            taken = copy.look()
            if taken is not None:
                print("took over", flush=True)
                fetcher.assign(taken)
                followed = taken
            for place, fetched in (fetcher.poll(0.01) if followed else {}).items():
                copy.add(place, fetched)
            if (now := value_of(copy.views, app, "k")) != seen:
                seen = now
                print(seen, flush=True)
            time.sleep(0.005)


if __name__ == "__main__":
    main()
