"""Installs the package from scratch and runs a word count through Spark, for each Python and each PySpark.

    python tools/try_install.py --python ~/.pyenv/versions/3.12.1/bin/python --pyspark 4.2.1 --pyspark 4.3.0

It builds the wheel, makes a fresh virtual environment for each pair, installs everything from PyPI and prints a row of
the table in docs/how-to/install.md for each. An environment takes about 1.5 GB while it is tried, and goes afterwards.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]

LINES = "all streams lead to kafka\nhello kafka streams\njoin kafka summit\n"
PROGRAM = """
import sys
import threading

from penstock import KafkaStreams, Materialized, Produced, StreamsBuilder

builder = StreamsBuilder()
words = builder.stream("lines").flat_map_values(str.split)
counts = words.group_by(lambda _, word: word).count(Materialized("counts"))
counts.to_stream().to("word-counts", Produced(key_serde="string", value_serde="long"))
config = {
    "application.id": "tried", "bootstrap.servers": "sqlite:///logs.db", "state.dir": "state",
    "default.key.serde": "string", "default.value.serde": "string",
    "spark.master": "local[2]", "spark.ui.enabled": "false",
}
counted = threading.Event()
streams = KafkaStreams(builder.build(), config)
streams.add_progress_listener(lambda batch: counted.set())
streams.start()
assert counted.wait(120), "no batch in two minutes"
streams.close()
"""


def run(*command: object, folder: Path, text: str | None = None) -> str:
    """Run a command in a folder and return its output; end with it if the command fails."""
    done = subprocess.run([*map(str, command)], cwd=folder, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def try_pair(python: Path, pyspark: str, wheel: Path) -> str:
    """Install and count in a folder of its own; the row of the table."""
    with tempfile.TemporaryDirectory(prefix="try-install-") as name:
        folder = Path(name)
        run(python, "-m", "venv", "venv", folder=folder)
        binaries = folder / "venv" / "bin"
        run(binaries / "pip", "install", "--quiet", wheel, f"pyspark=={pyspark}", folder=folder)
        penstock = binaries / "penstock"
        (folder / "app.py").write_text(PROGRAM)
        run(penstock, "topics", "create", "lines", "--partitions", 2, "-b", "logs.db", folder=folder)
        run(penstock, "topics", "produce", "lines", "-b", "logs.db", folder=folder, text=LINES)
        run(binaries / "python", "app.py", folder=folder)
        shown = run(penstock, "topics", "consume", "word-counts", "-b", "logs.db", folder=folder)
        last = dict(line.split()[-2:] for line in shown.splitlines() if line)
        if last.get("kafka") != "3":
            sys.exit(f"kafka stands three times in the lines, and was counted otherwise:\n{shown}")
        version = run(binaries / "python", "-c", "import sys; print(sys.version.split()[0])", folder=folder).strip()
    return f"| {version} | {pyspark} | installed, word count through Spark |"


def main() -> None:
    """Try each pair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", type=Path, required=True, help="an interpreter; may be repeated")
    parser.add_argument("--pyspark", action="append", required=True, help="a version; may be repeated")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="try-install-") as name:
        run(sys.executable, "-m", "build", "--wheel", "--outdir", name, ROOT, folder=ROOT)
        wheel = next(Path(name).glob("*.whl"))
        for python in args.python:
            for pyspark in args.pyspark:
                print(try_pair(python.expanduser(), pyspark, wheel), flush=True)


if __name__ == "__main__":
    main()
