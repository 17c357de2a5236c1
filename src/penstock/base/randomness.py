"""Random numbers that leave those of the program alone.

A program that calls ``random.seed`` expects the same numbers in every run. Threads of this library that drew theirs
from the same generator, at times of their own, would take some of them away.
"""

from __future__ import annotations

import random

__all__ = ["RANDOM"]

# The system's own: it has no state, so threads and forked workers share nothing.
RANDOM = random.SystemRandom()
