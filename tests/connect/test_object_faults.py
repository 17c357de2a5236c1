"""The object sink over an S3 server whose requests fail before and after they are carried out: each record once, by name."""

import http.client
import itertools
import json
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import obstore
import pytest

from http_servers import serving
from penstock.connect.connectors.objects import ObjectSinkConnector
from penstock.connect.testing import ConnectTestDriver, Step
from penstock.errors import ConnectError
from test_object_sink import bucket

__all__ = ["bucket"]
FOLDERS = itertools.count()


class Faults(ThreadingHTTPServer):
    """Passes requests on to an S3 server; of those that write, the faults in turn happen to one each.

    Those in `read_faults` happen to requests that read.
    """

    daemon_threads = True

    def __init__(self, target, faults):
        super().__init__(("127.0.0.1", 0), _Fault)
        self.target, self.faults, self.methods = target.removeprefix("http://"), list(faults), []
        self.read_faults = []


class _Fault(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def carry(self):
        body = self.body()
        writes = self.command in ("PUT", "POST") and "_penstock" not in self.path
        reads = self.command in ("GET", "HEAD")
        faults = self.server.faults if writes else self.server.read_faults if reads else []
        fault = faults.pop(0) if faults else None
        if writes:
            self.server.methods.append((self.command, self.path.partition("?")[2].partition("=")[0]))
        if fault in ("500 before", "503 before"):
            self.reply(int(fault[:3]), b"<Error><Code>SlowDown</Code></Error>", {})
            return
        if fault == "403":
            self.reply(403, b"<Error><Code>AccessDenied</Code></Error>", {})
            return
        if fault == "reset before":
            self.reset()
            return
        connection = http.client.HTTPConnection(self.server.target)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        if fault == "500 after":
            self.reply(500, b"<Error><Code>InternalError</Code></Error>", {})
        elif fault == "reset after":
            self.reset()
        elif fault == "cut" and len(data) > 1:
            self.reply(answer.status, data, dict(answer.getheaders()), data[: len(data) // 2])
            self.reset()
        else:
            self.reply(answer.status, data, dict(answer.getheaders()))

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = carry  # noqa: N815 - the server's names for them

    def body(self):
        """The bytes of the body as they are, in pieces too: a client that waits for an answer must not wait for ever."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while True:
            line = self.rfile.readline()
            size = int(line.partition(b";")[0], 16)
            body += line
            if not size:
                break
            body += self.rfile.read(size + 2)
        while (line := self.rfile.readline()).strip():  # trailers
            body += line
        return body + b"\r\n"

    def reply(self, status, data, headers, sent=None):
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                self.send_header(name, value)
        is_head = self.command == "HEAD"
        self.send_header("Content-Length", headers.get("Content-Length", "0") if is_head else str(len(data)))
        self.end_headers()
        if not is_head:
            self.wfile.write(data if sent is None else sent)

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.close_connection = True
        self.connection.close()

    def log_message(self, *_):
        pass


def sink(server, url, **more):
    settings = {
        "topics": "hits",
        "store.url": url,
        "format": "json",
        "name": "lake",
        "rotate.schedule.interval.ms": "0",
    }
    settings["store.options"] = f"endpoint:http://127.0.0.1:{server.server_port}"
    return ConnectTestDriver(ObjectSinkConnector, {**settings, **more})


def written(bucket, url):
    """The objects of a sink, by name, read from the server itself."""
    store = obstore.store.from_url(url, endpoint=bucket, client_options={"allow_http": True})
    names = sorted(entry["path"] for page in obstore.list(store, prefix="hits") for entry in page)
    return {name.rpartition("+")[2]: bytes(obstore.get(store, name).bytes()) for name in names}


def numbers(objects):
    return [json.loads(line)["n"] for data in objects.values() for line in data.splitlines()]


@pytest.mark.parametrize("fault", ["500 before", "503 before", "reset before", "500 after", "reset after"])
@pytest.mark.parametrize("step", [None, Step.PUT, Step.FLUSHED])
def test_objects_are_written_once_whatever_happens_to_requests(bucket, fault, step):
    url = f"s3://lake/faults-{next(FOLDERS)}"
    with serving(Faults(bucket, [fault, None, fault])) as server:
        driver = sink(server, url, **{"flush.size": "2"})
        driver.produce("hits", *({"n": n} for n in range(7)))
        if step is not None:
            driver.put(crash=step)
        driver.put_all()
        driver.restart()
        driver.put_all()
        driver.stop()
        assert server.faults == []
    objects = written(bucket, url)
    assert numbers(objects) == list(range(7))
    assert list(objects) == [f"{first:020}-{min(first + 1, 6):020}.json" for first in (0, 2, 4, 6)]


@pytest.mark.parametrize("fault", ["500 before", "reset before", "500 after"])
def test_an_object_of_several_parts_is_whole_or_not_there(bucket, fault):
    url = f"s3://lake/parts-{next(FOLDERS)}"
    with serving(Faults(bucket, [None, fault, None, fault])) as server:
        driver = sink(server, url, **{"flush.size": "13"})
        for number in range(13):
            driver.produce("hits", {"n": number, "text": f"{number:x}" * 1_000_000})
        driver.put_all()
        driver.stop()
        kinds = [name for _, name in server.methods]
    assert kinds.count("partNumber") >= 3
    assert numbers(written(bucket, url)) == list(range(13))


def test_a_request_that_is_forbidden_fails_the_task_and_a_restart_goes_on(bucket):
    url = f"s3://lake/forbidden-{next(FOLDERS)}"
    with serving(Faults(bucket, [None, "403"])) as server:
        driver = sink(server, url, **{"flush.size": "2"})
        driver.produce("hits", *({"n": n} for n in range(6)))
        with pytest.raises(ConnectError, match="Check the credentials") as caught:
            driver.put()
        assert "cannot be written" in caught.value.message
        driver.kill()
        driver.put_all()
        driver.stop()
    assert numbers(written(bucket, url)) == list(range(6))
