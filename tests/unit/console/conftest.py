from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path += [
    str(ROOT / "tests" / "browser"),
    str(ROOT / "tests" / "unit" / "engines"),
    str(ROOT / "tools"),
    str(ROOT / "tests" / "unit" / "query"),
]
