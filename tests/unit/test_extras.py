"""Without the libraries of the extras: what does without them is imported, and the console says what to install."""

import subprocess
import sys

EXTRAS = (
    "confluent_kafka", "deltalake", "fastapi", "fastavro", "google.protobuf", "h2", "httpx", "jinja2", "jsonschema",
    "kafka", "opentelemetry", "prometheus_client", "pydantic", "pyiceberg", "sqlalchemy", "starlette", "trustme",
    "uvicorn", "yaml",
)  # fmt: skip
MODULES = (
    "penstock.cli.main", "penstock.connect.delivery", "penstock.console.extension", "penstock.engines.kafka_streams",
    "penstock.engines.threads.hosting.thread_host", "penstock.query.http.client", "penstock.serving",
    "penstock.sql.session", "penstock.testing", "penstock.tools.registry_server",
)  # fmt: skip
PROGRAM = f"""
import importlib, sys
sys.modules.update(dict.fromkeys({EXTRAS!r}))
for name in {MODULES!r}:
    importlib.import_module(name)
from penstock.console.web.server import require_console_libraries
from penstock.errors import EnvironmentProblemError
try:
    require_console_libraries()
except EnvironmentProblemError as error:
    print(error)
"""


def test_without_extras_modules_are_imported_and_the_console_says_what_it_needs():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "the console needs jinja2, which is not installed" in done.stdout
    assert 'pip install "penstock[ui]"' in done.stdout
