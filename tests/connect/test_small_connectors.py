"""The datagen source and the webhook sink."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from penstock.connect.connectors import LIBRARY
from penstock.connect.connectors.datagen import DatagenSource
from penstock.connect.connectors.http import webhook
from penstock.connect.testing import ConnectTestDriver, Step
from penstock.errors import ConnectError


def test_generated_records_go_on_after_a_crash_and_are_those_of_the_seed():
    def records(*crashes):
        config = {"quickstart": "access-log", "iterations": 300, "rate": 1e9, "seed": 7}
        driver = ConnectTestDriver(DatagenSource, config)
        for crash in crashes:
            driver.poll(crash=crash)
        while driver.poll():
            pass
        return [record.value for record in driver.read("access_log")]

    whole = records()
    assert len(whole) == 300
    assert records(Step.POLLED, Step.WRITTEN, Step.COMMITTED) == whole


class Server(ThreadingHTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.got, self.answers = [], []


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = self.server.answers.pop(0) if self.server.answers else 200
        self.server.got.append((status, self.headers.get("Authorization"), body))
        self.send_response(status)
        self.end_headers()

    do_PUT = do_POST  # noqa: N815 - the server's name for it

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    made = Server()
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def test_a_webhook_gets_batches_and_what_failed_for_now_comes_again(server):
    url = f"http://127.0.0.1:{server.server_port}/hook"
    driver = ConnectTestDriver(webhook, {"topics": "in", "url": url, "batch.size": 2, "authorization": "Bearer x"})
    driver.produce("in", {"n": 1}, {"n": 2}, {"n": 3})
    server.answers = [200, 503]
    assert driver.put() == []
    assert len(driver.put()) == 3
    assert [body for status, _, body in server.got if status == 200] == [[{"n": 1}, {"n": 2}]] * 2 + [[{"n": 3}]]
    assert server.got[0][1] == "Bearer x"
    server.answers = [400]
    driver.produce("in", {"n": 4})
    with pytest.raises(ConnectError, match="answers 400"):
        driver.put()


def test_a_webhook_gets_json_that_any_parser_reads(server):
    url = f"http://127.0.0.1:{server.server_port}/hook"
    driver = ConnectTestDriver(webhook, {"topics": "in", "url": url, "method": "PUT", "headers": "X-A: b"})
    driver.produce("in", {"n": float("nan"), "m": float("inf")})
    driver.put()
    assert server.got[0][2] == [{"n": "NaN", "m": "Infinity"}]


def test_a_webhook_that_is_away_is_tried_again(server):
    port = server.server_port
    driver = ConnectTestDriver(webhook, {"topics": "in", "url": f"http://127.0.0.1:{port}/", "batch.size": 1})
    server.server_close()
    server.shutdown()
    driver.produce("in", {"n": 1})
    assert driver.put() == []


def test_every_setting_of_every_connector_is_documented():
    for connector in LIBRARY:
        assert connector.__doc__, connector
        assert all(setting.doc for setting in connector.config), connector
