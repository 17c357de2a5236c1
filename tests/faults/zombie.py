"""A stream thread in a process of its own, without Spark: it runs until an error ends it, whose name it prints.

python zombie.py NAME URL ROOT EPOCH GUARANTEE
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from continuous_app import settings, topology
from penstock.errors import PenstockError
from penstock.log.open import open_log
from threads import new_thread, thread_app


def main(name, url, root, epoch, guarantee):
    config = {**settings(name, url, root), "processing.guarantee": guarantee}
    with open_log(url) as log:
        app = thread_app(topology(name), config, log, f"{root}/replicas")
        thread = new_thread(app, log, epoch=int(epoch))
        try:
            thread.start()
            print("running", flush=True)
            while True:
                thread.step(0.1)
        except PenstockError as error:
            print(type(error).__name__, flush=True)
        finally:
            thread.close(commit=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
