"""A session of Penstock SQL in a process of its own, which a test kills: python sql_app.py LOG|CONFIG [STATEMENTS]."""

from __future__ import annotations

import json
import sys
import time

from penstock.sql.session import SqlSession


def main(place: str, statements: str = "") -> None:
    config = json.loads(place) if place.startswith("{") else {"bootstrap.servers": place}
    session = SqlSession({"spark.master": "local[1]", "statestore.cache.max.bytes": 0, **config})
    if statements:
        session.execute(statements)
    while True:
        states = {query.id: query.state for query in session.queries.values()}
        print("STATES", states, flush=True)
        apps = {query.id: query.app for query in session.queries.values()}
        threads = {name: app.metrics.total("alive-stream-threads") for name, app in apps.items() if app is not None}
        print("THREADS", json.dumps(threads), flush=True)
        time.sleep(0.3)


if __name__ == "__main__":
    main(*sys.argv[1:])
