"""Fetches the vendored scripts of the console from npm, and checks them against their vendor.json.

    python tools/vendored.py          compares the files with their checksums
    python tools/vendored.py --fetch  fetches them anew by `npm pack`, and replaces a file only if its checksum fits

Exits with 1 if a file differs. To take a newer version, change it in vendor.json, run --fetch and copy the new sums.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

__all__ = ["FOLDERS", "differences", "main"]

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "src/penstock/console/web/static/vendor", ROOT / "tests/browser/vendor")


def differences(folder: Path) -> list[str]:
    """What in a folder is not as its vendor.json says: files that differ, are missing, or are not named."""
    packages = json.loads((folder / "vendor.json").read_text())
    wanted = {name: digest for package in packages for name, (_, digest) in package["files"].items()}
    present = {path.name: path for path in folder.iterdir() if path.name != "vendor.json"}
    found = [f"{folder}/{name} is missing" for name in wanted.keys() - present.keys()]
    found += [f"{folder}/{name} is not in vendor.json" for name in present.keys() - wanted.keys()]
    for name in wanted.keys() & present.keys():
        if hashlib.sha256(present[name].read_bytes()).hexdigest() != wanted[name]:
            found.append(f"{folder}/{name} differs from its checksum")
    return sorted(found)


def fetch(folder: Path) -> list[str]:
    """Fetch the files of a folder; return those whose checksum does not fit, which are left as they are."""
    refused = []
    for package in json.loads((folder / "vendor.json").read_text()):
        with tempfile.TemporaryDirectory() as scratch:
            name = f"{package['package']}@{package['version']}"
            made = subprocess.run(
                ["npm", "pack", "--silent", name], cwd=scratch, check=True, capture_output=True, text=True
            )
            with tarfile.open(Path(scratch) / made.stdout.strip().splitlines()[-1]) as archive:
                for target, (member, digest) in package["files"].items():
                    file = archive.extractfile(f"package/{member}")
                    data = b"" if file is None else file.read()
                    if hashlib.sha256(data).hexdigest() == digest:
                        (folder / target).write_bytes(data)
                    else:
                        refused.append(f"{name}: {member} has another checksum: {hashlib.sha256(data).hexdigest()}")
    return refused


def main() -> int:
    """Print what differs."""
    found = [line for folder in FOLDERS for line in (fetch(folder) if "--fetch" in sys.argv else ())]
    found += [line for folder in FOLDERS for line in differences(folder)]
    print("\n".join(found) or "the vendored files are as vendor.json says")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
