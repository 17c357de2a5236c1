"""A worker process for the tests: runs the batch whose number it reads, for both tasks."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    from committed_checkpoint import Checkpoint

    checkpoint = Checkpoint(Path(sys.argv[1]))
    for line in sys.stdin:
        batch = int(line)
        for task in range(2):

            def change(store, task=task, batch=batch):
                if task == 0:
                    store("plain").put("key", str(batch))
                    store("plain").put(f"more{batch}", "x")

            checkpoint.run(task, batch, change)
            checkpoint.worker(task).pause()
            checkpoint.worker(task).resume()
        print(batch, flush=True)
