"""A judged application as a process: python judge_app.py NAME SETTINGS_AS_JSON

Its standard input takes lines ``state STORE FILE``, for the contents of a store as JSON; it ends with whoever holds the
other end.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from judge_topologies import APPLICATIONS
from penstock import KafkaStreams
from penstock.errors import AppFailedError


def answer(app: KafkaStreams) -> None:
    for line in sys.stdin:
        _, store, file = line.split()
        rows = [[key, value] for key, value in app.store(store).all()]
        written = Path(file).with_suffix(".part")
        written.write_text(json.dumps(rows))
        written.rename(file)
    os._exit(1)


def main(name: str, settings: str) -> None:
    judged = APPLICATIONS[name]
    app = KafkaStreams(judged.topology(), {"application.id": judged.name, **judged.settings, **json.loads(settings)})
    app.set_state_listener(lambda new, _: print(f"STATE {new.value}", flush=True))
    threading.Thread(target=answer, args=(app,), daemon=True).start()
    try:
        app.run()
    except AppFailedError as failed:
        print(failed.facts.get("details"), file=sys.stderr)
        raise


if __name__ == "__main__":
    main(*sys.argv[1:])
