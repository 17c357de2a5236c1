"""Packs the recorded cases that pass into `cases.tar.xz`, or into the archive that is named, which the tests run.

    python tests/conformance/vendor.py DIR [ARCHIVE]

A case is packed when outputs, stores and dropped records agree, and its description, if it has one. Names inside are sorted and times zeroed,
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

FOLDER = Path(__file__).parent


def main() -> None:
    """Runs all cases of the folder and packs those that pass."""
    logging.getLogger("penstock").setLevel(logging.ERROR)  # dropped records are expected
    target = FOLDER / (sys.argv[2] if len(sys.argv) > 2 else "cases.tar.xz")
    packed = 0
    with tarfile.open(target, "w:xz") as archive:
        for case in load(Path(sys.argv[1])):
            kinds = (False, True) if "describe" in case else (False,)
            checks = [Namespace(describe=d, engine="driver", splits=None, verbose=0) for d in kinds]
            if all(run_case(case, check)[0] is None for check in checks):
                name = case.pop("file")
                data = json.dumps(case, separators=(",", ":"), sort_keys=True).encode()
                entry = tarfile.TarInfo(f"{name}.json")
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
                packed += 1
    print(f"{packed} cases in {target.name}, {target.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
