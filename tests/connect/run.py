#!/usr/bin/env python3
"""Runs recorded cases of Kafka Connect: run.py [DIR] [--kind KIND] [--log LOG] [--json FILE].

With ``--kind debezium`` DIR is a folder or archive of cases of Debezium's connector for PostgreSQL, with ``--kind jdbc``
of Confluent's JDBC source and sink, over SQLite, PostgreSQL and MariaDB. It prints a line a
failed case (``-v``: all differences), and ends in ``N passed, M failed``.
"""

import argparse
import contextlib
import json
import re
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from connect_cases import ARCHIVE, KINDS, load_cases
from connect_debezium import ARCHIVE as DEBEZIUM_ARCHIVE
from connect_debezium import DebeziumRunner, load_debezium_cases
from connect_jdbc import ARCHIVE as JDBC_ARCHIVE
from connect_jdbc import JdbcRunner, load_jdbc_cases
from connect_mirror import run_mirror
from connect_pure import run_case
from connect_rest import Scenario
from penstock.tools.broker.broker_settings import BrokerSettings, free_port
from penstock.tools.broker.process import Broker
from postgres_server import PostgresServer


def run(case, options):
    """The differences of a case, of whichever kind."""
    if case["kind"] == "rest":
        return Scenario(case, options.servers).run()
    if case["kind"] == "debezium":
        return options.debezium.run(case)
    if case["kind"] == "jdbc":
        return options.jdbc.run(case)
    return run_mirror(case) if case["kind"] == "mirror" else run_case(case)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dir", nargs="?", help="a folder of cases; by default the project's own")
    parser.add_argument("--kind", choices=(*KINDS, "debezium", "jdbc"))
    parser.add_argument(
        "--log", choices=("kafka", "embedded"), default="embedded", help="the log under a worker's cases"
    )
    parser.add_argument("--servers", help="over Kafka: a broker that runs, in place of one of its own")
    parser.add_argument("--only", help="the cases whose names have this text")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("-v", "--verbose", action="store_true", help="print all differences of a case")
    options = parser.parse_args()
    if options.kind == "debezium":
        cases = [{**case, "kind": "debezium"} for case in load_debezium_cases(options.dir or DEBEZIUM_ARCHIVE)]
    elif options.kind == "jdbc":
        cases = [{**case, "kind": "jdbc"} for case in load_jdbc_cases(options.dir or JDBC_ARCHIVE)]
    else:
        cases = load_cases(options.dir or ARCHIVE, options.kind)
    cases = [case for case in cases if not options.only or re.search(options.only, case["name"])]
    with contextlib.ExitStack() as stack:
        if options.kind == "debezium":
            server = PostgresServer()
            stack.callback(server.stop)
            options.debezium = DebeziumRunner(server)
        if options.kind == "jdbc":
            options.jdbc = JdbcRunner()
            stack.callback(options.jdbc.stop)
        if options.log == "kafka" and not options.servers:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="connect-broker-")))
            broker = stack.enter_context(Broker(BrokerSettings(folder / "kafka", free_port(), free_port())))
            options.servers = broker.settings.bootstrap_servers
        return report(cases, options)


def report(cases, options):
    """Run the cases, print what failed, and return the exit code."""
    results = []
    for case in cases:
        began = time.monotonic()
        found = run(case, options)
        results.append(
            {
                "kind": case["kind"],
                "name": case["name"],
                "passed": not found,
                "differences": found,
                "seconds": round(time.monotonic() - began, 2),
            }
        )
        if found:
            shown = found if options.verbose else [found[0][:600]]
            print(f"FAILED {case['kind']}/{case['name']}: " + "\n    ".join(shown))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    failed = sum(not result["passed"] for result in results)
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
