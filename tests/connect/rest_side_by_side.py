#!/usr/bin/env python3
"""Sends random requests to a worker of Kafka Connect and to one of this project, and compares the answers.

``rest_side_by_side.py --cases 20`` runs so many scenarios of each family, ``--family looks,life`` of these; ``--seed`` is the
first seed. It prints how many agree, and what differs. ``--keep DIR`` writes the scenarios with Java's answers to a
folder; ``--pack FILE DIR`` makes of such a folder the archive that `test_rest_side_by_side.py` runs. ``--log kafka`` has a
broker below this project's worker too.
"""

import argparse
import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from connect_cases import write_archive
from connect_compare import substitute
from connect_rest import HEADERS, Scenario, send, send_together
from penstock.base.jars import java_command
from penstock.log import open_log
from penstock.tools.broker.broker_settings import BrokerSettings, free_port
from penstock.tools.broker.java_worker import package_folder, worker_jars
from penstock.tools.broker.process import Broker, guard
from random_requests import DISTRIBUTED, SCENARIOS, STANDALONE, random_scenario

TOOLS = ("org.apache.kafka", "connect-test-plugins", "4.3.1")
LEFT_OUT = "org.apache.kafka.connect.tools.SchemaSourceConnector"
MOVING = ("UNASSIGNED", "RESTARTING")
START_S, SETTLE_S, CALM_S = 120, 30, 1.0
WHOLE = re.compile(r"^(Caused by: )?([\w.$]+)(?:: (.*))?$")


class UnsettledError(Exception):
    """Java's worker did not come to rest."""


class JavaProcess:
    """A worker of Kafka Connect."""

    def __init__(self, mode, settings, folder):
        self.port = free_port()
        settings = {**settings, "listeners": f"http://127.0.0.1:{self.port}"}
        file = Path(folder) / f"worker-{self.port}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = [
            java_command(), "-Xmx400m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dlog4j2.level=OFF", "-Dlog4j2.StatusLogger.level=OFF",
            "-cp", f"{worker_jars()}/*:{package_folder(TOOLS)}/*", f"org.apache.kafka.connect.cli.Connect{mode.capitalize()}", str(file),
        ]  # fmt: skip
        with (Path(folder) / f"worker-{self.port}.log").open("wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.guard = guard(self.process.pid)
        deadline = time.monotonic() + START_S
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"Java's worker does not start: see {file.with_suffix('.log')}")
            time.sleep(0.1)

    def is_ready(self):
        try:
            return send(self.port, {"method": "GET", "path": "/health"})[0] == 200
        except OSError:
            return False

    def ask(self, method, path):
        status, _, content = send(self.port, {"method": method, "path": path})
        return status, json.loads(content) if content else None

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.guard.kill()
        self.guard.communicate()


class Recorder:
    """Java's workers of one mode over a broker: they give scenarios their answers.

    Args:
        mode: Distributed or standalone.
        servers: The broker.
        folder: Where their files go.
    """

    def __init__(self, mode, servers, folder):
        self.mode, self.servers, self.folder = mode, servers, Path(folder)
        base = STANDALONE if mode == "standalone" else DISTRIBUTED
        self.settings = substitute(base, {"BROKER": servers, "DIR": str(folder)})
        self.workers = {"a": JavaProcess(mode, self.settings, folder)}
        self.log = open_log(servers)

    def close(self):
        for worker in self.workers.values():
            worker.stop()
        self.log.close()

    def recorded(self, case):
        """The case with Java's answers.

        Raises:
            UnsettledError: Its connectors did not come to rest.
        """
        place = self.folder / case["name"]
        place.mkdir()
        self.variables = {"DIR": str(place), "BROKER": self.servers, "CLUSTER": self.log.identity()}
        try:
            steps = []
            for step in case["steps"]:
                steps += self.step(step)
            return {**case, "steps": steps}
        finally:
            self.clear()
            shutil.rmtree(place)

    def clear(self):
        """Leave nothing of a scenario: no connector, no second worker."""
        for name in [name for name in self.workers if name != "a"]:
            self.workers.pop(name).stop()
        deadline = time.monotonic() + SETTLE_S
        while names := self.workers["a"].ask("GET", "/connectors")[1]:
            for name in names:
                self.workers["a"].ask("DELETE", f"/connectors/{''.join(f'%{byte:02X}' for byte in name.encode())}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"connectors of Java's worker cannot be deleted: {names}")
            time.sleep(0.3)

    def step(self, step):
        """What a step of a scenario becomes."""
        if "settle" in step:
            return self.settled(step)
        done = substitute(step, self.variables)
        if "together" in step:
            got = send_together(done["together"], lambda request: self.workers[request.get("worker", "a")].port)
            return [{**step, "statuses": [got]}]
        if "start_worker" in step:
            self.workers[step["start_worker"]["id"]] = JavaProcess(self.mode, self.settings, self.folder)
            self.calm(set())
        elif "stop_worker" in step:
            self.workers.pop(step["stop_worker"]).stop()
        elif "request" in step:
            answer = send(self.workers[done["request"].get("worker", "a")].port, done["request"])
            if step.get("await"):
                time.sleep(0.3)
                answer = send(self.workers[done["request"].get("worker", "a")].port, done["request"])
            response = self.response(step["request"], answer)
            if (
                isinstance(response.get("body"), list)
                and step["request"]["path"].partition("?")[0].strip("/") == "connectors"
            ):
                step = {**step, "unordered": [""]}  # they come in the order of Java's hash maps
            return [{**step, "response": response}]
        else:
            Scenario.write_file(self, done) if "write_file" in step else Scenario.create_topic(self, done)
        return [step]

    def settled(self, step):
        """The states of all connectors, once nothing changes any more."""
        self.calm(step["settle"].items())
        found = []
        for name in step["settle"]:
            encoded = "".join(f"%{byte:02X}" for byte in name.encode())
            for path in ("status", "tasks"):
                request = {"method": "GET", "path": f"/connectors/{encoded}/{path}"}
                answer = send(self.workers["a"].port, request)
                more = {"ignore": ["worker_id"]} if len(self.workers) > 1 else {}
                found.append({"request": request, "response": self.response(request, answer), "await": True, **more})
        return found

    def calm(self, wanted):
        deadline, last, since = time.monotonic() + SETTLE_S, None, time.monotonic()
        while time.monotonic() < deadline:
            states = [worker.ask("GET", "/connectors?expand=status&expand=info") for worker in self.workers.values()]
            if states != last:
                last, since = states, time.monotonic()
            rest = all(status == 200 and at_rest(body, dict(wanted)) for status, body in states)
            if rest and time.monotonic() - since > CALM_S:
                return
            time.sleep(0.1)
        raise UnsettledError(f"{dict(wanted)}: {json.dumps(last)[:1500]}")

    def response(self, request, answer):
        """An answer in the form of the cases."""
        status, headers, content = answer
        response = {"status": status}
        kept = {name: self.general(value) for name, value in headers.items() if name in HEADERS}
        if kept:
            response["headers"] = kept
        text = self.general(content.decode("utf-8", "replace"))
        if kept.get("content-type", "").startswith("text/html"):
            response["html"] = True
        elif text and request["method"] != "HEAD":
            try:
                response["body"] = matcher_of(json.loads(text))
            except ValueError:
                response["text"] = text
        return response

    def general(self, text):
        """A text without what is this run's own."""
        for name, worker in self.workers.items():
            text = text.replace(f"127.0.0.1:{worker.port}", "%WORKER%" if name == "a" else f"%WORKER_{name.upper()}%")
        for name in ("DIR", "BROKER", "CLUSTER"):
            text = text.replace(self.variables[name], f"%{name}%")
        return text


def at_rest(connectors, wanted):
    """Whether connectors have the tasks that are wanted, and none is on its way to another state."""
    if wanted and set(connectors) != set(wanted):
        return False
    for name, count in wanted.items():
        status, info = connectors[name].get("status"), connectors[name].get("info")
        if not status or len(status["tasks"]) != len(info["tasks"]):
            return False
        if any(each["state"] in MOVING for each in (status["connector"], *status["tasks"])):
            return False
        if count and status["connector"]["state"] == "RUNNING" and len(status["tasks"]) != count:
            return False
    return True


def matcher_of(value, name=None):
    """A body whose times, traces and commits match any."""
    if name == "trace":
        return {"$trace": traced(value)}
    if name == "commit":
        return {"$any": True}
    if name == "last_modified" and value is not None:
        return {"$int": True}
    if isinstance(value, dict):
        return {key: matcher_of(part, key) for key, part in value.items()}
    if isinstance(value, str) and 'Cannot invoke "' in value:  # the words of Java's NullPointerException
        return {"$any": True}
    if isinstance(value, list):
        return [matcher_of(part) for part in value if not (isinstance(part, dict) and part.get("class") == LEFT_OUT)]
    return value


def traced(trace):
    """A stack trace as the exceptions of its causes."""
    found = (WHOLE.match(line) for line in trace.splitlines() if line[:1] not in ("\t", ""))
    return [{"class": each[2], "message": each[3]} for each in found if each]


class Side:
    """Both workers of a mode, started when they are needed."""

    def __init__(self, folder, stack, over_kafka):
        self.folder, self.stack, self.recorders = folder, stack, {}
        self.servers = self.broker("java")
        self.own = self.broker("own") if over_kafka else None

    def broker(self, name):
        settings = BrokerSettings(Path(self.folder) / name, free_port(), free_port())
        return self.stack.enter_context(Broker(settings)).settings.bootstrap_servers

    def recorded(self, case):
        mode = case["mode"]
        if mode not in self.recorders:
            place = Path(self.folder) / mode
            place.mkdir()
            self.recorders[mode] = Recorder(mode, self.servers, place)
            self.stack.callback(self.recorders[mode].close)
        return self.recorders[mode].recorded(case)


def compare(side, family, seeds, keep):
    """Whether all scenarios of a family agree; prints what differs."""
    cases = requests = different = unsettled = 0
    for seed in seeds:
        try:
            case = side.recorded(random_scenario(family, seed))
        except UnsettledError as error:
            unsettled += 1
            print(f"{family}-{seed}: Java does not come to rest: {error}", flush=True)
            continue
        if keep:
            (keep / f"{case['name']}.json").write_text(json.dumps(case))
        cases += 1
        requests += sum(
            len(step.get("together", [1])) for step in case["steps"] if "request" in step or "together" in step
        )
        found = Scenario(case, side.own, goes_on=True).run()
        different += bool(found)
        steps = set()
        for each in found:
            step = each.partition(":")[0]
            if step not in steps:  # the first difference of each
                print(f"  {case['name']} ({case['mode']}) {each[:900]}", flush=True)
            steps.add(step)
    print(
        f"{family}: {cases - different} of {cases} scenarios agree ({requests} requests; {unsettled} left out)",
        flush=True,
    )
    return not different


def pack(folder, file):
    """Make an archive of scenarios with Java's answers."""
    write_archive(file, ((f"rest/{path.name}", path.read_bytes()) for path in sorted(folder.glob("*.json"))))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pack", nargs=2, type=Path, metavar=("FILE", "DIR"), help="make an archive of a folder")
    parser.add_argument("--cases", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--family", default=",".join(SCENARIOS))
    parser.add_argument(
        "--log", choices=("kafka", "embedded"), default="embedded", help="the log of this project's worker"
    )
    parser.add_argument("--keep", type=Path, help="a folder for all scenarios with Java's answers")
    options = parser.parse_args()
    if options.pack:
        file, kept = options.pack
        pack(kept, file)
        return 0
    with tempfile.TemporaryDirectory(prefix="side-by-side-") as folder, contextlib.ExitStack() as stack:
        side = Side(folder, stack, options.log == "kafka")
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
        seeds = range(options.seed, options.seed + options.cases)
        agree = [compare(side, family, seeds, options.keep) for family in options.family.split(",")]
    return 0 if all(agree) else 1


if __name__ == "__main__":
    sys.exit(main())
