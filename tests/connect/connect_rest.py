"""Runs the recorded scenarios of workers: a fresh worker over a fresh log, the steps in order, what comes back compared."""

import base64
import contextlib
import http.client
import json
import re
import shutil
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from connect_compare import differences, loose, substitute
from penstock.connect.rest import WorkerServer
from penstock.connect.worker_settings import WorkerConfig
from penstock.errors import PenstockError, UnknownTopicError
from penstock.log import Producer, TopicPartition, open_log
from penstock.tools.broker.broker_settings import free_port

PLUGINS = {name: Path(__file__).with_name(f"{name}_connectors.py") for name in ("scripted", "tool")}
HEADERS = ("content-type", "location", "allow", "access-control-allow-methods")
SETS = ("allow", "access-control-allow-methods")
AWAIT_S = 60.0
LOOKS = {"compacted_topic", "topics", "group_offsets"}


class Scenario:
    """A scenario while it runs.

    Args:
        case: The case.
        servers: Kafka's bootstrap servers; None: an embedded log.
        in_process: Whether tasks run in threads of this process.
        most_sleep_ms: The longest pause between two steps; Kafka Connect's own workers needed up to some seconds.
        goes_on: Whether the steps after one that differs are run as well.
    """

    def __init__(self, case, servers=None, *, in_process=True, most_sleep_ms=60_000, goes_on=False):
        self.case = case
        self.goes_on = goes_on
        self.most_sleep_ms = most_sleep_ms
        self.dir = Path(tempfile.mkdtemp(prefix="connect-"))
        self.url = servers or f"sqlite:///{self.dir}-log.db?synchronous=off"
        self.in_process = in_process
        self.log = open_log(self.url)
        if servers is not None:
            self.empty()
        self.workers = {}
        self.variables = {"DIR": str(self.dir), "BROKER": self.url, "CLUSTER": self.log.identity()}

    def empty(self):
        """Delete what an earlier scenario has left on the broker."""
        for group in self.log.groups():
            with contextlib.suppress(PenstockError):
                self.log.delete_group(group)
        for topic in self.log.topics():
            with contextlib.suppress(PenstockError):
                self.log.delete_topic(topic.name)
        deadline = time.monotonic() + AWAIT_S
        while self.log.topics() and time.monotonic() < deadline:
            time.sleep(0.1)

    def run(self):
        """The differences that were found, none if it passes."""
        try:
            try:
                self.begin("a", {})
            except PenstockError as error:
                return [] if self.case.get("start_error") else [f"the worker does not start: {error}"]
            if self.case.get("start_error"):
                return ["the worker starts"]
            found = []
            for number, step in enumerate(self.case["steps"]):
                differing = self.step(substitute_known(step, self.variables))
                found += [f"step {number} {self.shown(step)}: {each}" for each in differing]
                if found and not self.goes_on:
                    break
            return found  # noqa: TRY300
        except Exception:  # noqa: BLE001 - a failure of the runner is a failed case
            return [traceback.format_exc()]
        finally:
            for worker in self.workers.values():
                worker.stop()
            self.log.close()
            shutil.rmtree(self.dir, ignore_errors=True)
            for file in self.dir.parent.glob(f"{self.dir.name}-log.db*"):
                file.unlink()

    def begin(self, name, props):
        port = free_port()
        given = substitute({**self.case["worker"], **props}, self.variables)
        given |= {
            "bootstrap.servers": self.url,
            "listeners": f"http://127.0.0.1:{port}",
            "plugin.path": str(PLUGINS[self.case.get("plugins", "scripted")]),
            "tasks.in.process": "true" if self.in_process else "false",
        }
        connectors = []
        for file in self.case.get("connector_files") or ():
            path = self.dir / file["name"]
            path.write_text(substitute(file["text"], self.variables))
            connectors.append(path)
        server = WorkerServer(WorkerConfig.of(given, self.case["mode"]))
        keep_recorded(server.worker.herder.plugins)
        server.start()
        self.workers[name] = server
        assert server.wait_until_ready(180)
        self.variables["WORKER" if name == "a" else f"WORKER_{name.upper()}"] = server.worker.worker_id
        if connectors:
            from penstock.connect.worker.standalone import create_from_file

            for path in connectors:
                create_from_file(server.worker, path)

    def shown(self, step):
        request = step.get("request")
        return f"{request['method']} {request['path']}" if request else next(iter(step))

    def step(self, step):
        awaited = step.get("await") or LOOKS & step.keys()  # on a busy machine the worker may still be writing
        deadline = time.monotonic() + (AWAIT_S if awaited else 0)
        while True:
            found = self.once(step)
            if not found or time.monotonic() >= deadline:
                return found
            time.sleep(0.05)

    def once(self, step):
        for kind in STEPS:
            if kind in step:
                return getattr(self, kind)(step) or []
        raise ValueError(f"an unknown step: {step}")

    # Requests

    def request(self, step):
        request, response = step["request"], step["response"]
        worker = self.workers[request.get("worker", "a")]
        return self.compare(step, response, send(worker.port, request))

    def together(self, step):
        """Requests at the same time: which statuses come back, in whatever order."""
        got = send_together(step["together"], lambda request: self.workers[request.get("worker", "a")].port)
        return [] if got in step["statuses"] else [f"statuses {got} in place of {step['statuses']}"]

    def compare(self, step, response, answer):
        status, headers, content = answer
        if status != response["status"]:
            return [f"status {status} in place of {response['status']}: {content[:300]!r}"]
        found = []
        wanted = response.get("headers") or {}
        for name in {*HEADERS, *wanted}:
            want, got = wanted.get(name), headers.get(name)
            if name in SETS and want and got:
                want, got = (sorted(part.strip() for part in text.split(",")) for text in (want, got))
            if want != got:
                found.append(f"header {name}: {got!r} in place of {want!r}")
        if response.get("html"):
            return found
        if "text" in response:
            words = [sorted(part.strip() for part in text.split(",")) for text in (response["text"], content.decode())]
            return found if words[0] == words[1] else [*found, f"text {content!r}"]
        if "body" not in response:
            return (
                found if not content or step["request"]["method"] == "HEAD" else [*found, f"a body: {content[:200]!r}"]
            )
        try:
            body = json.loads(content)
        except ValueError:
            return [*found, f"not JSON: {content[:200]!r}"]
        if step.get("loose_message") or loose(step):
            same = isinstance(body, dict) and body.get("error_code") == response["body"]["error_code"]
            return found if same else [*found, f"error {body}"]
        return found + differences(
            response["body"], body, ignore=step.get("ignore", ()), unordered=step.get("unordered", ())
        )

    # Files

    def write_file(self, step):
        file = step["write_file"]
        with Path(file["path"]).open("a" if file.get("mode") == "append" else "w", encoding="utf-8", newline="") as out:
            out.write(file["text"])

    def make_dir(self, step):
        Path(step["make_dir"]["path"] if isinstance(step["make_dir"], dict) else step["make_dir"]).mkdir()

    def read_file(self, step):
        path = Path(step["read_file"]["path"])
        got = path.read_bytes().decode() if path.exists() else None
        want = step["text"]
        if step.get("any_order") and got is not None and want is not None:
            got, want = sorted(got.splitlines()), sorted(want.splitlines())
        return [] if got == want else [f"{got!r} in place of {want!r}"]

    # Topics

    def create_topic(self, step):
        topic = step["create_topic"]
        self.log.create_topic(topic["name"], topic["partitions"], topic.get("config") or {})

    def produce(self, step):
        order = step["produce"]
        try:
            self.log.partitions(order["topic"])
        except UnknownTopicError:
            self.log.create_topic(order["topic"], order["partitions"])
        with Producer(self.log) as producer:
            for record in order["records"]:
                headers = [(name, as_bytes(value)) for name, value in record.get("headers") or ()]
                producer.send(
                    order["topic"], as_bytes(record["value"]), key=as_bytes(record["key"]),
                    partition=record.get("partition"), headers=headers or None,
                )  # fmt: skip

    def consume(self, step):
        got = []
        for place, record in self.records(step["consume"]["topic"]):
            form = {"partition": place.partition, "key": form_of(record["key"]), "value": form_of(record["value"])}
            if record["headers"]:
                form["headers"] = [[h["key"], form_of(h["value"])] for h in record["headers"]]
            got.append(form)
        want = [as_json(each) for each in step["records"]]
        got = [as_json(each) for each in got]
        unordered = ("",) if step.get("any_order") else ()
        return differences(want, got, ignore=step.get("ignore", ()), unordered=unordered)

    def records(self, topic):
        try:
            count = self.log.partitions(topic)
        except UnknownTopicError:
            return
        for number in range(count):
            at, end = self.log.beginning_offset(topic, number), self.log.end_offset(topic, number)
            while at < end:
                fetched = self.log.read(topic, number, at)
                for record in fetched.records.to_pylist():
                    yield TopicPartition(topic, number), record
                if fetched.next_offset <= at:
                    break
                at = fetched.next_offset

    def compacted_topic(self, step):
        entries = {}
        for _, record in self.records(step["compacted_topic"]):
            key, value = (form_of(record[name]) for name in ("key", "value"))
            [name] = key.values()
            entries[name] = parsed(value["text"]) if value and "text" in value else value
        return differences(step["entries"], entries, ignore=step.get("ignore", ()))

    def topics(self, step):
        pattern = re.compile(step["topics"])
        found = {}
        for topic in self.log.topics():
            if pattern.fullmatch(topic.name):
                info = self.log.topic(topic.name)
                found[topic.name] = {"partitions": info.partitions, "config": dict(info.config)}
        return differences(step["found"], found)

    def commit_offsets(self, step):
        order = step["commit_offsets"]
        self.log.commit_offsets(order["group"], {place_of(name): at for name, at in order["offsets"].items()})

    def group_offsets(self, step):
        got = {
            f"{place.topic}-{place.partition}": at
            for place, at in self.log.committed_offsets(step["group_offsets"]).items()
        }
        return differences(step["offsets"], got)

    # Workers

    def start_worker(self, step):
        order = step["start_worker"]
        self.begin(order["id"], order.get("props") or {})

    def stop_worker(self, step):
        self.workers.pop(step["stop_worker"]).stop()

    def sleep_ms(self, step):
        time.sleep(min(step["sleep_ms"], self.most_sleep_ms) / 1000)


STEPS = (
    "request", "together", "write_file", "make_dir", "read_file", "create_topic", "produce", "consume", "compacted_topic", "topics",
    "commit_offsets", "group_offsets", "start_worker", "stop_worker", "sleep_ms",
)  # fmt: skip


def send(port, request):
    """Send a request of a case; return status, headers and content of the answer."""
    headers = dict(request.get("headers") or {})
    if "body" in request or "raw" in request:
        body = (json.dumps(request["body"]) if "body" in request else request["raw"]).encode()
        if "headers" not in request:
            headers["Content-Type"] = "application/json"
    else:
        body = b"" if request["method"] in ("POST", "PUT", "PATCH") else None
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.putrequest(request["method"], request["path"], skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, content


def send_together(requests, port_of):
    """Send requests at the same time; return the statuses of their answers, sorted."""
    with ThreadPoolExecutor(len(requests)) as pool:
        return sorted(pool.map(lambda request: send(port_of(request), request)[0], requests))


def keep_recorded(plugins):
    """Leave a worker the plugins that the recorded one had: answers list all that there are."""
    known = plugins._plugins
    for name in [name for name in known if not name.startswith(("org.apache.kafka.", "Scripted"))]:
        del known[name]


def substitute_known(step, variables):
    """The step with the variables that are known by now."""
    return substitute(step, variables)


def place_of(name):
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


def as_bytes(form):
    if form is None:
        return None
    return base64.b64decode(form["base64"]) if isinstance(form, dict) else form.encode()


def form_of(data):
    if data is None:
        return None
    text = text_of(data)
    return {"base64": base64.b64encode(data).decode()} if text is None else {"text": text}


def text_of(data):
    """Bytes as text; None if they are none, as the numbers of the mirror's records, most of them zero."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def parsed(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def as_json(record):
    """A record whose texts that are JSON are compared as JSON."""
    made = dict(record)
    for name in ("key", "value"):
        if isinstance(made.get(name), dict) and "text" in made[name]:
            made[name] = {"text": parsed(made[name]["text"])}
    if "headers" in made:
        made["headers"] = [[name, as_trace(value)] for name, value in made["headers"]]
    return made


def as_trace(value):
    """A header that is text stands for its text, so that a matcher of a stack trace meets a text."""
    return value["text"] if isinstance(value, dict) and "text" in value else value
