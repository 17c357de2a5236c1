"""A session of Penstock SQL in a process of its own, which a test kills: python sql_app.py LOG [STATEMENTS]."""

from __future__ import annotations

import sys
import time

from penstock.sql.session import SqlSession


def main(log: str, statements: str = "") -> None:
    session = SqlSession({"bootstrap.servers": log, "spark.master": "local[1]", "statestore.cache.max.bytes": 0})
    if statements:
        session.execute(statements)
    while True:
        states = {query.id: query.state for query in session.queries.values()}
        print("STATES", states, flush=True)
        time.sleep(0.3)


if __name__ == "__main__":
    main(*sys.argv[1:])
