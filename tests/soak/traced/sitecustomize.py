"""Lets each Python process of the soak's application tell what it does: SIGUSR1 writes its threads' stacks to a file."""

from __future__ import annotations

import faulthandler
import os
import signal

if path := os.environ.get("PENSTOCK_SOAK_THREADS"):
    faulthandler.register(signal.SIGUSR1, open(path, "a"), all_threads=True)  # noqa: SIM115, PTH123 - for as long as it lives
