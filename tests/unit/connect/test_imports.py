"""What a worker of connectors and its tasks do not load: it would cost each of these processes memory and time."""

import subprocess
import sys

NOT_NEEDED = ("polars", "pandas", "pyspark", "sqlalchemy", "duckdb")
MODULES = (
    "penstock.cli.connect.worker",
    "penstock.connect.rest.server",
    "penstock.connect.connectors.sql_sink",
    "penstock.state.segments.object_storage",  # of the sink to object stores
)


def test_a_worker_loads_no_libraries_of_others():
    program = f"import sys, {', '.join(MODULES)}; print(*sorted(set({NOT_NEEDED!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == []
