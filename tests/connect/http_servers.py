"""HTTP servers of tests: one that answers as it is told, one that implements the bulk interface of search clusters."""

import contextlib
import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

__all__ = ["BulkServer", "JsonServer", "RawServer", "serving"]


@contextmanager
def serving(server):
    """A server in a thread."""
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


class _Quiet(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, status, body, headers=()):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


class JsonServer(ThreadingHTTPServer):
    """Answers by a function of the query's parameters and the request's headers: (status, body, headers)."""

    daemon_threads = True

    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0), _Json)
        self.make, self.asked = answer, []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/items"


class _Json(_Quiet):
    def do_GET(self):
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        self.server.asked.append(query)
        self.answer(*self.server.make(query, self.headers))


class RawServer(ThreadingHTTPServer):
    """Answers each request by the bytes of a list, whatever they are, the last ones again and again; then it hangs up.

    An element is bytes, or a function that gets the connection.
    """

    daemon_threads = True

    def __init__(self, *answers):
        super().__init__(("127.0.0.1", 0), _Raw)
        self.answers, self.asked, self.bodies = list(answers), [], []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/items"


class _Raw(_Quiet):
    def do_POST(self):
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.do_GET()

    do_PUT = do_POST  # noqa: N815 - the server's name for it

    def do_GET(self):
        server = self.server
        server.asked.append(self.path)
        answer = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
        self.close_connection = True
        with contextlib.suppress(OSError):  # the client has gone
            if callable(answer):
                answer(self.connection)
            else:
                self.connection.sendall(answer)


class BulkServer(ThreadingHTTPServer):
    """The part of a search cluster's ``_bulk`` that sinks need: index, update, delete, external versions, mappings.

    Fields called ``number`` must be numbers, as a mapping would have it. ``busy`` requests are refused first.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Bulk)
        self.documents, self.versions = {}, {}
        self.busy, self.busy_items, self.requests = 0, 0, []
        self.is_other, self.most_bytes, self.delay_s = False, 1 << 30, 0
        self.retry_after = None
        self.results = []  # of the next documents, in place of its own
        self.whole = None  # the answer to whatever request: status and body, or a function that gets the connection

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def apply(self, action, meta, document):
        """One action, and its result."""
        place = (meta["_index"], meta["_id"])
        result = self.results.pop(0) if self.results else None
        if result is not None:
            return result
        if self.busy_items:
            self.busy_items -= 1
            return {"status": 429, "error": {"type": "es_rejected_execution_exception", "reason": "queue"}}
        fields = {} if document is None else document["doc"] if action == "update" else document
        if not isinstance(fields.get("number", 0), int | float):
            return {"status": 400, "error": {"type": "mapper_parsing_exception", "reason": "failed to parse number"}}
        if "version" in meta:
            if meta["version"] <= self.versions.get(place, -1):
                return {"status": 409, "error": {"type": "version_conflict_engine_exception", "reason": "older"}}
            self.versions[place] = meta["version"]
        if action == "delete":
            return {"status": 200 if self.documents.pop(place, None) is not None else 404}
        old = self.documents.get(place, {}) if action == "update" else {}
        created = place not in self.documents
        self.documents[place] = {**old, **fields}
        return {"status": 201 if created else 200}


class _Bulk(_Quiet):
    def do_POST(self):
        server = self.server
        data = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(server.delay_s)
        server.requests.append((self.path, self.headers.get("Authorization"), len(data)))
        if len(data) > server.most_bytes:
            self.answer(413, b"too large")
            return
        if server.busy:
            server.busy -= 1
            headers = [("Retry-After", server.retry_after)] if server.retry_after else []
            self.answer(503, {"error": "busy"}, headers)
            return
        if callable(server.whole):
            with contextlib.suppress(OSError):  # the client has gone
                server.whole(self.connection)
            self.close_connection = True
            return
        if server.whole is not None:
            self.answer(server.whole["status"], server.whole["body"])
            return
        if server.is_other:
            self.answer(200, {"welcome": "to another server"})
            return
        lines, items = iter(json.loads(line) for line in data.splitlines()), []
        for line in lines:
            ((action, meta),) = line.items()
            result = server.apply(action, meta, None if action == "delete" else next(lines))
            items.append({action: {"_index": meta["_index"], "_id": meta["_id"], **result}})
        self.answer(200, {"errors": any("error" in next(iter(i.values())) for i in items), "items": items})
