"""Quix Streams: python quix_peer.py, one process or several; settings.py says what the environment holds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from quixstreams import Application

from settings import ENV, EXACTLY_ONCE, OUT, WORKLOAD, begin, group_of, mark, parse, shown


def add(amount: int, state: Any) -> int:
    begin()
    total = state.get("total", 0) + amount
    state.set("total", total)
    return total


def count(_: Any, state: Any) -> int:
    number = state.get("count", 0) + 1
    state.set("count", number)
    return number


def hits(app: Application) -> Any:
    lines = app.dataframe(app.topic(ENV["TOPIC_LOGS"], value_deserializer="str"))
    return lines.apply(parse).filter(lambda hit: hit is not None)


def with_json(app: Application, topic: str) -> Any:
    return app.dataframe(app.topic(ENV[topic], key_deserializer="str", value_deserializer="json"))


def flow(app: Application, out: Any) -> None:
    if WORKLOAD == "w1":
        errors = hits(app).filter(lambda hit: hit["status"] >= 400)
        errors.apply(shown).to_topic(out, key=lambda hit: hit["ip"])
    elif WORKLOAD in ("w2a", "w2b"):
        grouped = hits(app).apply(lambda hit: {"group": group_of(hit)}).group_by("group")
        windows = grouped.tumbling_window(timedelta(minutes=1), grace_ms=timedelta(minutes=15)).count().current()
        named = windows.apply(
            lambda window, key, _time, _headers: {"key": f"{key}@{window['start']}", "count": window["value"]},
            metadata=True,
        )
        named.to_topic(out, key=lambda row: row["key"])
    elif WORKLOAD == "w3":
        with_json(app, "TOPIC_SUMS").apply(add, stateful=True).to_topic(out)
    else:
        orders = with_json(app, "TOPIC_ORDERS").filter(lambda _: begin() is None)
        joined = orders.join_asof(with_json(app, "TOPIC_USERS"), how="inner")
        cities = joined.apply(lambda both: {"city": both["city"], "item": both["item"]}).group_by("city")
        cities.apply(count, stateful=True).to_topic(out)


def main() -> None:
    app = Application(
        broker_address=ENV["BOOTSTRAP"],
        consumer_group=ENV["APP_ID"],
        auto_offset_reset="earliest",
        state_dir=ENV["STATE_DIR"],
        loglevel="WARNING",
        processing_guarantee="exactly-once" if EXACTLY_ONCE else "at-least-once",
    )
    flow(app, app.topic(OUT, key_serializer="str", value_serializer="json"))
    mark("RUNNING")
    app.run()


if __name__ == "__main__":
    main()
