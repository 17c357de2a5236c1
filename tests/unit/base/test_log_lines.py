"""Log lines as JSON objects: their fields, their secrets, and the commands that write them."""

import json
import logging
import os
import subprocess
import sys
import threading

import pytest
import typer

from penstock.base.log_lines import JsonLines, LogStream, Work, hide, json_line_of
from penstock.base.secrets import secret_texts
from penstock.engines.spark.jvm import as_json

COMMANDS = [
    ("run",), ("sql", "run"), ("sql", "serve"), ("connect", "worker"), ("connect", "standalone"), ("connect", "run"),
    ("mirror",), ("ui",), ("registry", "start"), ("demo", "access-log"),
]  # fmt: skip


def line(message, *values, **more):
    record = logging.getLogger("penstock.test").makeRecord(
        "penstock.test", logging.WARNING, __file__, 1, message, values, more.pop("exc_info", None), extra=more
    )
    return json.loads(JsonLines().format(record))


def test_a_line_names_the_application_the_task_and_the_batch_at_work():
    with Work(application="orders"), Work(task="1_2", batch=7):
        inside = line("half of %s", "it")
    assert (inside["application"], inside["task"], inside["batch"]) == ("orders", "1_2", 7)
    assert (inside["message"], inside["level"], inside["logger"]) == ("half of it", "WARNING", "penstock.test")
    outside = line("after")
    assert (outside["application"], outside["task"], outside["batch"]) == (None, None, None)


def test_other_threads_name_the_application_while_it_is_the_only_one():
    found = []

    def one():
        thread = threading.Thread(target=lambda: found.append(line("x")["application"]))
        thread.start()
        thread.join()

    def two():
        one()
        Work(application="second").run(one)

    Work(application="first").run(two)
    one()
    assert found == ["first", None, None]


def test_an_error_has_its_type_its_message_and_its_trace():
    try:
        int("no amount in http://ann:pw@host/x")
    except ValueError:
        found = line("failed", exc_info=sys.exc_info())
    assert found["error"]["type"] == "ValueError"
    assert "http://ann:***@host/x" in found["error"]["message"]
    assert "Traceback" in found["error"]["trace"]
    assert "pw@" not in json.dumps(found)


@pytest.mark.parametrize(
    "text",
    ["password=geheim77", '{"ssl.key.password": "geheim77"}', "Authorization: Bearer geheim7712345",
     "api_key: 'geheim77'", "https://ann:geheim77@host:8081/subjects"],
)  # fmt: skip
def test_secrets_are_stars_wherever_they_stand(text):
    found = line("%s", text, settings={"given": [text]})
    assert "geheim77" not in json.dumps(found)
    assert "***" in found["message"]


def test_the_secrets_of_settings_are_stars_in_any_sentence():
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="kurz-9x";'
    hide(secret_texts({"sasl.jaas.config": login, "ssl.key.password": "${env:KEY}", "client.id": "visible"}))
    assert line("the broker refused kurz-9x of visible")["message"] == "the broker refused *** of visible"


def test_a_short_secret_leaves_the_words_that_it_is_part_of():
    hide(["open", "geheim77", "abc", "-x-1", "opened-42"])
    said = line("reopened popen-gw1 with open, 'open' or open@host:open; xgeheim77x opened-42 a-x-1b abc")["message"]
    assert said == "reopened popen-gw1 with ***, '***' or ***@host:***; x***x *** a-x-1b abc"
    assert line("u=a-x-1;")["message"] == "u=a***;"


def test_a_line_of_spark_becomes_an_object_and_a_workers_own_stays():
    wrapped = json.loads(as_json(b"java.lang.OutOfMemoryError: Java heap space\n"))
    assert (wrapped["message"], wrapped["logger"]) == ("java.lang.OutOfMemoryError: Java heap space", "spark")
    of_java = {"time": "2026-01-01T00:00:00.000Z", "level": "WARN", "logger": "o.a.s.X", "message": "password=abcd"}
    found = json.loads(json_line_of(json.dumps(of_java), "spark"))
    assert (found["level"], found["message"], found["batch"]) == ("WARNING", "password=***", None)
    own = JsonLines().format(logging.makeLogRecord({"msg": "x", "name": "y"}))
    assert json_line_of(own, "spark") == own
    assert as_json(b"\n") == b""


def test_whole_lines_of_a_stream_become_records(caplog):
    with caplog.at_level(logging.INFO):
        stream = LogStream("penstock.cli")
        stream.write("one\ntw")
        stream.write("o\n\nrest")
    assert [record.getMessage() for record in caplog.records] == ["one", "two"]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_that_runs_something_has_the_option(words):
    from penstock.cli.main import app

    command = typer.main.get_command(app)
    for word in words:
        command = command.get_command(typer.Context(command), word)
    assert "--log-format" in [option for each in command.params for option in each.opts]


def run(folder, *arguments, **more):
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", *arguments],
        cwd=folder, env={**os.environ, **more}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_an_error_of_a_command_is_one_object_too(tmp_path):
    done = run(tmp_path, "run", "absent.py:topology", "--log-format", "json")
    (found,) = [json.loads(text) for text in done.stderr.splitlines()]
    assert (done.returncode, found["level"], found["logger"]) == (1, "ERROR", "penstock.cli")
    assert "absent.py" in found["message"]
    assert found["hint"]


def test_a_connectors_lines_name_the_connector(tmp_path):
    (tmp_path / "in.txt").write_text("a\nb\n")
    settings = {
        "name": "lines", "connector.class": "FileStreamSource", "file": str(tmp_path / "in.txt"), "topic": "lines",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    }  # fmt: skip
    (tmp_path / "lines.json").write_text(json.dumps(settings))
    done = run(tmp_path, "connect", "run", "lines.json", "--once", PENSTOCK_LOG_FORMAT="json")
    lines = [json.loads(text) for text in done.stderr.splitlines()]
    assert done.returncode == 0, done.stderr
    assert "lines: 2 records" in [each["message"] for each in lines]


@pytest.mark.whole
def test_driver_and_workers_of_an_application_write_nothing_but_objects(tmp_path):
    import pyarrow as pa

    from penstock.log.base import RECORD_SCHEMA
    from penstock.log.open import open_log

    (tmp_path / "app.py").write_text(
        "import logging\n"
        "from penstock import StreamsBuilder\n"
        "def noisy(value):\n"
        "    logging.getLogger('mine').warning('saw %s with password=geheim77', value)\n"
        "    return value\n"
        "builder = StreamsBuilder()\n"
        "builder.stream('in').map_values(noisy).to('out')\n"
        "topology = builder.build()\n"
        "config = {'application.id': 'noisy', 'default.key.serde': 'string', 'default.value.serde': 'string'}\n"
    )
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as log:
        log.create_topic("in")
        rows = [{"offset": 0, "timestamp": 0, "key": None, "value": b"a", "headers": None}]
        log.append("in", 0, pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA))
    done = run(
        tmp_path, "run", "app:topology", "-b", "log.db", "--until", "latest", "--log-format", "json",
        PENSTOCK_LOG_LEVEL="DEBUG",
    )  # fmt: skip
    lines = [json.loads(text) for text in done.stderr.splitlines()]
    assert done.returncode == 0, done.stderr
    (saw,) = [each for each in lines if each["logger"] == "mine"]
    assert (saw["application"], saw["task"], saw["batch"]) == ("noisy", "0_0", 0)
    assert saw["message"] == "saw a with password=***"
    states = [each["message"] for each in lines if "->" in each["message"]]
    assert states[-1] == "noisy: PENDING_SHUTDOWN -> NOT_RUNNING"
    assert {each["application"] for each in lines} == {"noisy"}
    assert lines[-1]["figures"]["records_in"] == 1
