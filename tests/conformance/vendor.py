"""Packs the recorded cases that pass into `cases.tar.xz`, which the tests run.

    python tests/conformance/vendor.py DIR

A case is packed when outputs, stores, dropped records and description agree. Names inside are sorted and times zeroed,
so the same cases give the same bytes.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import tarfile
from argparse import Namespace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from run import load, run_case

ARCHIVE = Path(__file__).with_name("cases.tar.xz")


def main() -> None:
    """Runs all cases of the folder and packs those that pass."""
    logging.getLogger("penstock").setLevel(logging.ERROR)  # dropped records are expected
    packed = 0
    with tarfile.open(ARCHIVE, "w:xz") as archive:
        for case in load(Path(sys.argv[1])):
            checks = [Namespace(describe=d, engine="driver", splits=None, verbose=0) for d in (False, True)]
            if all(run_case(case, check)[0] is None for check in checks):
                name = case.pop("file")
                data = json.dumps(case, separators=(",", ":"), sort_keys=True).encode()
                entry = tarfile.TarInfo(f"{name}.json")
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
                packed += 1
    print(f"{packed} cases in {ARCHIVE.name}, {ARCHIVE.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
