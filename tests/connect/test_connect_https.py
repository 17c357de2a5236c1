"""Workers that serve HTTPS pass requests on to each other over HTTPS, and trust nobody else."""

import json
import ssl
import urllib.error
import urllib.request

import pytest
import trustme

from penstock.connect.rest import WorkerServer
from penstock.connect.rest.forwarding import ask_worker, trust_of
from penstock.connect.worker_settings import WorkerConfig
from penstock.errors import ConfigError
from test_connect_worker import FILE_SOURCE, settings, until


@pytest.fixture
def certified(tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    own = authority.issue_cert("127.0.0.1")
    own.private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    return settings(tmp_path, **{
        "listeners": "https://127.0.0.1:0", "ssl.certificate.file": str(tmp_path / "own.pem"),
        "ssl.ca.file": str(tmp_path / "ca.pem"), "tasks.in.process": "true", "session.timeout.ms": "6000",
    })  # fmt: skip


def asked(server, method, path, context, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{server.url}{path}", data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")


def test_requests_are_passed_on_over_https(certified, tmp_path):
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    servers = [WorkerServer(WorkerConfig.of(certified, "distributed")) for _ in range(2)]
    try:
        for server in servers:
            server.start()
        assert all(server.wait_until_ready(180) for server in servers)
        until(lambda: sum(server.worker.herder.view.leads for server in servers) == 1)
        for number, server in enumerate(servers):  # one of them is not the leader
            config = {"connector.class": FILE_SOURCE, "file": str(tmp_path / "in.txt"), "topic": "t"}
            body = {"name": f"f{number}", "config": config}
            until(lambda server=server, body=body: asked(server, "POST", "/connectors", context, body)[0] == 201)
        until(lambda: all(len(asked(each, "GET", "/connectors", context)[1]) == 2 for each in servers))
        with pytest.raises(ssl.SSLCertVerificationError):
            ask_worker(servers[0].worker.worker_id, ("GET", "/"), b"", {}, trust=ssl.create_default_context())
    finally:
        for server in servers:
            server.stop()


def test_the_key_of_a_certificate_may_be_in_a_file_of_its_own(tmp_path):
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    own.private_key_pem.write_to_path(tmp_path / "key.pem")
    own.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")  # without the key
    given = settings(tmp_path, **{
        "listeners": "https://127.0.0.1:0", "ssl.certificate.file": str(tmp_path / "cert.pem"),
        "ssl.key.file": str(tmp_path / "key.pem"), "tasks.in.process": "true",
    })  # fmt: skip
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    server = WorkerServer(WorkerConfig.of(given, "distributed"))
    try:
        server.start()
        assert asked(server, "GET", "/connectors", context) == (200, [])
    finally:
        server.stop()


def test_a_file_that_is_no_certificate_is_refused_before_anything_is_bound(certified, tmp_path):
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(ConfigError, match=r"ssl\.ca\.file"):
        trust_of(WorkerConfig.of(certified, "distributed"))
    assert trust_of(WorkerConfig.of(settings(tmp_path), "distributed")) is None
