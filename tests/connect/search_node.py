"""A node of OpenSearch as a process, of the jars of Maven; and what it answers to requests, recorded.

``search_node.py FILE`` records the answers of the cases that `test_search_sink.py` replays.
"""

import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from java_sources import compiled, compiler
from penstock.base.jars import fetch_jars, java_command
from penstock.tools.broker.broker_settings import free_port

__all__ = ["SearchNode", "search_node"]

VERSION = "2.19.6"  # the last one for Java 17
JARS = (
    ("org.opensearch", "opensearch", VERSION),
    ("org.opensearch.plugin", "transport-netty4-client", VERSION),
    ("org.apache.logging.log4j", "log4j-core", "2.25.4"),
)
SOURCE = Path(__file__).parent / "java" / "SearchNode.java"
PATIENCE_S = 120
SETTINGS = {
    "http.max_content_length": "200kb",
    "thread_pool.write.queue_size": "2",  # a request for more indices than that finds it full
    "action.auto_create_index": "-missing*,+*",
}


class SearchNode:
    """A node whose documents are in a folder of its own.

    Args:
        folder: Where the compiled class and the documents are.
    """

    def __init__(self, folder):
        self.folder, self.port = Path(folder), free_port()
        (self.folder / "home" / "config").mkdir(parents=True)
        jars = fetch_jars(f"opensearch-{VERSION}", JARS)
        self._path = compiled(SOURCE, self.folder, jars)
        self.process = None
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        """Start it, the first time or again, and wait until it takes documents."""
        options = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=OFF"]
        options += ["-Dlog4j2.StatusLogger.level=OFF", "-Dopensearch.set.netty.runtime.available.processors=false"]
        settings = [f"{name}={value}" for name, value in SETTINGS.items()]
        command = [java_command(), *options, "-cp", self._path, "SearchNode", str(self.folder / "home"), str(self.port)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *settings], stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self.folder
            )
        deadline = time.monotonic() + PATIENCE_S
        while self._health() not in ("green", "yellow"):
            assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, "OpenSearch does not start"
            time.sleep(0.1)

    def _health(self):
        try:
            return self.ask("GET", "/_cluster/health")[1].get("status")
        except OSError:
            return None

    def kill(self):
        """End it at once, as a crash does."""
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self.process.stdin.close()

    def ask(self, method, path, body=None, kind="application/json"):
        """A request: the status and the document of its answer."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, {"Content-Type": kind}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"null")

    def documents(self, index):
        """The documents of an index by their ids."""
        self.ask("POST", f"/{index}/_refresh")
        found = self.ask("GET", f"/{index}/_search?size=10000")[1]
        return {hit["_id"]: hit["_source"] for hit in found.get("hits", {}).get("hits", [])}

    def stop(self):
        if self.process.poll() is None:
            self.kill()


def missing_node():
    """Why no node can be started here; None: it can."""
    if compiler() is None:
        return "there is no javac: a JDK compiles what starts OpenSearch"
    return None


@pytest.fixture(scope="session")
def search_node(tmp_path_factory):
    reason = missing_node()
    if reason:
        pytest.skip(reason)
    node = SearchNode(tmp_path_factory.mktemp("search"))
    yield node
    node.stop()


def lines(*parts):
    return b"".join(json.dumps(each).encode() + b"\n" for each in parts)


def index(name, key, document, **more):
    return [{"index": {"_index": name, "_id": key, **more}}, document]


def versioned(name, key, document, version):
    return index(name, key, document, version=version, version_type="external")


def upsert(name, key, document):
    return [{"update": {"_index": name, "_id": key}}, {"doc": document, "doc_as_upsert": True}]


def delete(name, key, **more):
    return [{"delete": {"_index": name, "_id": key, **more}}]


def recorded(node):
    """The answers of the cases by name: status and document."""
    node.ask("PUT", "/strict", {"mappings": {"dynamic": "strict", "properties": {"n": {"type": "long"}}}})
    node.ask("PUT", "/few", {"settings": {"index.mapping.total_fields.limit": 2}})
    node.ask("PUT", "/hits", {"mappings": {"properties": {"n": {"type": "long"}, "d": {"type": "date"}}}})
    for name, how in (("readonly", "read_only"), ("blocked", "read_only_allow_delete"), ("unwritable", "write")):
        node.ask("PUT", f"/{name}")
        node.ask("PUT", f"/{name}/_settings", {f"index.blocks.{how}": True})
    node.ask("PUT", "/closed")
    node.ask("POST", "/closed/_close")
    node.ask("PUT", "/_index_template/s", {"index_patterns": ["stream*"], "data_stream": {}})
    node.ask("PUT", "/_data_stream/stream")
    node.ask("PUT", "/twice-1", {"aliases": {"twice": {}}})
    node.ask("PUT", "/twice-2", {"aliases": {"twice": {}}})
    many = [part for n in range(8) for part in index(f"many-{n}", "a", {"n": 1})]
    for part in range(8):
        node.ask("PUT", f"/many-{part}", {"settings": {"number_of_replicas": 0}})
    deep = {"n": 1}
    for _ in range(30):
        deep = {"x": deep}
    cases = {
        "indexed": lines(*index("hits", "a", {"n": 1}), *index("hits", "a", {"n": 2})),
        "versioned": lines(*versioned("hits", "v", {"n": 1}, 5), *versioned("hits", "v", {"n": 2}, 7)),
        "version_conflict": lines(
            *versioned("hits", "v", {"n": 3}, 6), *delete("hits", "v", version=6, version_type="external")
        ),
        "upserted": lines(*upsert("hits", "u", {"n": 1}), *upsert("hits", "u", {"m": 1}), *upsert("hits", "u", {"m": 1})),
        "upsert_malformed": lines(*upsert("hits", "b", {"n": "x"}), *upsert("hits", "c", {"n": 3})),
        "deleted": lines(*delete("hits", "a"), *delete("hits", "a")),
        "deleted_versioned": lines(*delete("hits", "nothing", version=9, version_type="external")),
        "deleted_nowhere": lines(*delete("nowhere", "a")),
        "deleted_nowhere_versioned": lines(*delete("nowhere2", "a", version=9, version_type="external")),
        "deleted_missing": lines(*delete("missing", "a"), *index("hits", "b", {"n": 1})),
        "malformed": lines(*index("hits", "a", {"n": 1}), *index("hits", "b", {"n": "x"}), *index("hits", "c", {"n": 3})),
        "malformed_date": lines(*index("hits", "a", {"d": "x"})),
        "object_and_value": lines(*index("hits", "a", {"n": {"x": 1}})),
        "strict": lines(*index("strict", "a", {"n": 1}), *index("strict", "b", {"m": 1})),
        "too_many_fields": lines(*index("few", "a", {"a": 1, "b": 1, "c": 1, "d": 1})),
        "too_deep": lines(*index("hits", "a", deep)),
        "dots": lines(*index("hits", "a", {".": 1})),
        "empty_name": lines(*index("hits", "a", {"": 1})),
        "metadata_field": lines(*index("hits", "a", {"_id": "x"})),
        "no_index": lines(*index("missing", "a", {"n": 1}), *index("hits", "b", {"n": 1})),
        "closed": lines(*index("closed", "a", {"n": 1})),
        "read_only": lines(*index("readonly", "a", {"n": 1})),
        "flood_stage": lines(*index("blocked", "a", {"n": 1}), *index("hits", "b", {"n": 1})),
        "unwritable": lines(*index("unwritable", "a", {"n": 1})),
        "invalid_index": lines(*index("A b", "a", {"n": 1}), *index("hits", "b", {"n": 1})),
        "data_stream": lines(*index("stream", "a", {"@timestamp": 1})),
        "alias_of_two": lines(*index("twice", "a", {"n": 1})),
        "busy": lines(*many),
        "id_too_long": lines(*index("hits", "i" * 513, {"n": 1}), *index("hits", "b", {"n": 1})),
        "too_large": lines(*index("hits", "a", {"t": "x" * 300_000})),
        "no_json": b'{"index":{"_index":"hits"}}\n{"n":\n',
        "no_action": b'{"nothing":{"_index":"hits"}}\n{"n":1}\n',
        "no_end": b'{"index":{"_index":"hits"}}\n{"n":1}',
        "empty": b"\n",
        "update_of_nothing": lines({"update": {"_index": "hits", "_id": "nothing"}}, {"doc": {"n": 1}}),
        "too_few_copies": lines(*index("hits", "a", {"n": 1})),
    }  # fmt: skip
    found = {}
    for name, body in cases.items():
        query = "?wait_for_active_shards=2&timeout=1ms" if name == "too_few_copies" else ""
        status, answer = node.ask("POST", f"/_bulk{query}", body, "application/x-ndjson")
        found[name] = {"status": status, "body": answer}
    return found


def main():
    with tempfile.TemporaryDirectory() as folder:
        node = SearchNode(folder)
        try:
            cases = [f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in recorded(node).items()]
            Path(sys.argv[1]).write_text("{\n" + ",\n".join(cases) + "\n}\n")
        finally:
            node.stop()


if __name__ == "__main__":
    main()
