from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.log.base import TopicPartition
from penstock.log.open import open_log

ROOT = Path(__file__).parents[3]
EXAMPLE = str(ROOT / "examples" / "access_log.py")


@pytest.fixture
def log(tmp_path):
    return tmp_path / "topics.db"


def test_topics_from_creation_to_deletion(run, log):
    assert run("topics", "create", "t", "-p", 2, "-c", "retention.ms=-1", "-b", log)[0] == 0
    assert run("topics", "produce", "t", "--key", "k", "--value", "v", "--timestamp", 1000, "-b", log)[0] == 0
    code, out, _ = run("topics", "list", "-b", log, "--json")
    assert code == 0
    assert json.loads(out) == [{"name": "t", "partitions": 2, "records": 1, "internal": False}]
    described = json.loads(run("topics", "describe", "t", "-b", log, "--json")[1])
    assert described["config"] == {"retention.ms": "-1"}
    assert "1970-01-01T00:00:01.000Z  k  v" in run("topics", "consume", "t", "-b", log)[1]
    assert run("topics", "delete", "t", "--yes", "-b", log)[0] == 0
    assert "no topics" in run("topics", "list", "-b", log)[1]


def test_consume_by_format_offset_and_time(run, log, tmp_path):
    run("topics", "create", "t", "-b", log)
    lines = tmp_path / "lines"
    lines.write_text("a=1\nb=2\nc=3\n")
    produce = ("topics", "produce", "t", "--value-format", "long", "--separator", "=", "-b", log)
    assert run(*produce, "--file", lines, "--timestamp", "1970-01-01T00:00:01Z")[0] == 0
    assert run(*produce, "--key", "d", "--value", 4, "--timestamp", 5000)[0] == 0

    def values(*options):
        out = run("topics", "consume", "t", "--value-format", "long", "--json", "-b", log, *options)[1]
        return [json.loads(line)["value"] for line in out.splitlines()]

    assert values() == [1, 2, 3, 4]
    assert values("--from", 2) == [3, 4]
    assert values("--from", "end") == []
    assert values("--from-time", 1001) == [4]
    assert values("--to-time", "1970-01-01T00:00:05Z", "--max", 2) == [1, 2]


def test_tombstones(run, log):
    run("topics", "create", "t", "-b", log)
    run("topics", "produce", "t", "--key", "k", "--value", "NULL", "--null-value", "NULL", "-b", log)
    assert run("topics", "consume", "t", "-b", log)[1].endswith("k  null\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("topics", "describe", "tt"), "tt"),
        (("topics", "create", "t"), "t"),
        (("topics", "produce", "t", "--value", "x", "--value-format", "long"), "is not a long"),
        (("topics", "produce", "t", "--value", "x", "--partition", "7"), "no partition 7"),
        (("topics", "consume", "t", "--from", "x"), "Use beginning, end"),
        (("topics", "consume", "t", "--value-format", "strnig"), "strnig"),
        (("groups", "lag", "nobody"), "there is no group"),
    ],
)
def test_wrong_use_gives_one_message_and_no_trace(run, log, arguments, message):
    run("topics", "create", "t", "-b", log)
    code, _, err = run(*arguments, "-b", log)
    assert code == 1
    assert err.startswith("error: ")
    assert message in err
    assert "Traceback" not in err


def test_bytes_that_do_not_fit_the_format_say_where(run, log):
    run("topics", "create", "t", "-b", log)
    run("topics", "produce", "t", "--value", "abc", "-b", log)
    code, _, err = run("topics", "consume", "t", "--value-format", "long", "-b", log)
    assert code == 1
    assert "t-0@0: the value is not a long" in err


def test_a_record_of_another_format_does_not_hide_those_behind_it(run, log, tmp_path):
    (tmp_path / "raw").write_bytes(b"\xff\xfe raw")
    run("topics", "create", "t", "-b", log)
    run("topics", "produce", "t", "--value", "before", "-b", log)
    run("topics", "produce", "t", "--value-format", "bytes", "--file", tmp_path / "raw", "-b", log)
    run("topics", "produce", "t", "--value", '{"id": 7}', "-b", log)
    code, out, err = run("topics", "consume", "t", "-b", log)
    assert code == 0
    assert [line.rpartition("  ")[2] for line in out.splitlines()] == ["before", "\\xff\\xfe raw", '{"id": 7}']
    assert "1 key or value is not of the topic's format" in err
    code, out, _ = run("topics", "consume", "t", "--json", "--filter", "value.id = 7", "-b", log)
    assert [json.loads(line)["offset"] for line in out.splitlines()] == [2]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (f"{EXAMPLE}:topolgy", "Did you mean"),
        (f"{EXAMPLE}:config", "is a dict, not a topology"),
        ("no_such_module:topology", "there is no module"),
        ("no/such/file.py", "there is no file"),
    ],
)
def test_a_wrong_target(run, target, message):
    code, _, err = run("describe", target)
    assert code == 1
    assert message in err


def test_a_module_that_does_not_import_says_where(run, tmp_path):
    (tmp_path / "broken.py").write_text("x = 1\ny = x / 0\n")
    code, _, err = run("describe", tmp_path / "broken.py")
    assert code == 1
    assert "ZeroDivisionError" in err
    assert "broken.py:2" in err


def test_describe_and_explain(run):
    assert "Sub-topology: 1" in run("describe", f"{EXAMPLE}:topology")[1]
    assert run("describe", EXAMPLE, "--format", "mermaid")[1].startswith("flowchart")
    assert json.loads(run("describe", EXAMPLE, "--format", "json")[1])
    facts = json.loads(run("explain", EXAMPLE, "--partitions", 3, "--json")[1])
    assert [s["subtopologies"][0]["tasks"] for s in facts["stages"]] == [3, 3]
    assert set(facts["stores"]) == {"os-counts"}
    assert "os-counts" in run("explain", EXAMPLE)[1]


def test_run_refuses_wrong_settings(run, log):
    code, _, err = run("run", EXAMPLE, "-b", log, "-c", "commit.intervall.ms=1")
    assert code == 1
    assert "commit.interval.ms" in err
    code, _, err = run("run", EXAMPLE, "-b", log, "-c", "novalue")
    assert code == 1
    assert "KEY=VALUE" in err


def test_settings_from_files(tmp_path):
    from penstock.cli.options import read_config

    toml = tmp_path / "app.toml"
    toml.write_text('[application]\nid = "a"\n["num"]\npartitions = 3\n')
    plain = tmp_path / "app.properties"
    plain.write_text("# settings\napplication.id=b\n")
    assert read_config(["num.partitions=4"], toml) == {"application.id": "a", "num.partitions": "4"}
    assert read_config([], plain) == {"application.id": "b"}


def test_command_config_is_a_properties_file_of_client_settings(tmp_path):
    from penstock.cli.options import read_command_config
    from penstock.errors import ConfigError

    file = tmp_path / "client.properties"
    file.write_text('security.protocol = SASL_SSL\n! as Kafka\'s tools take it\nsasl.jaas.config=a \\\n  b="c";\n')
    assert read_command_config(None) == {}
    assert read_command_config(file) == {"security.protocol": "SASL_SSL", "sasl.jaas.config": 'a b="c";'}
    file.write_text("sasl.mechnism=PLAIN\n")
    with pytest.raises(ConfigError, match=r"sasl\.mechanism"):
        read_command_config(file)


CONFLUENT_CLOUD = """\
# Required connection configs for Kafka producer, consumer, and admin
bootstrap.servers=pkc-00000.eu-central-1.aws.confluent.cloud:9092
security.protocol=SASL_SSL
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username='KEY' password='SECRET';
sasl.mechanism=PLAIN
# Required for correctness in Apache Kafka clients prior to 2.6
client.dns.lookup=use_all_dns_ips
# Best practice for higher availability in Apache Kafka clients prior to 3.0
session.timeout.ms=45000
# Best practice for Kafka producer to prevent data loss
acks=all
client.id=ccloud-java-client-0
"""
REGISTRY = """\
# Required connection configs for Confluent Cloud Schema Registry
schema.registry.url=https://psrc-00000.eu-central-1.aws.confluent.cloud
basic.auth.credentials.source=USER_INFO
basic.auth.user.info=KEY:SECRET
"""


def test_the_page_of_confluent_cloud_is_taken_as_it_is_pasted(tmp_path):
    from penstock.cli.options import read_command_config, read_config
    from penstock.config import StreamsConfig
    from penstock.errors import ConfigError
    from penstock.log.kafka.client_settings import ClientSettings
    from penstock.serde.schemas.schema_settings import SchemaSettings

    file = tmp_path / "client.properties"
    file.write_text(CONFLUENT_CLOUD)
    clients = ClientSettings.of(settings=read_command_config(file))
    assert clients.security().username == "KEY"
    file.write_text(CONFLUENT_CLOUD + REGISTRY)
    with pytest.raises(ConfigError, match=r"schema\.registry\.url in .* schema registry's client") as refused:
        read_command_config(file)
    assert "--config-file" in refused.value.hint
    config = StreamsConfig(read_config(["application.id=orders"], file))
    assert ClientSettings.of(settings=config.given).security().username == "KEY"
    assert SchemaSettings().with_defaults(config.given).client()["basic.auth.user.info"] == "KEY:SECRET"


def test_every_command_over_a_log_takes_settings_of_its_clients():
    from typer.main import get_command

    from penstock.cli.main import app

    def options(command, path=()):
        for name, inner in getattr(command, "commands", {}).items():
            yield from options(inner, (*path, name))
        if not hasattr(command, "commands"):
            yield " ".join(path), {option for parameter in command.params for option in parameter.opts}

    found = dict(options(get_command(app)))
    over_a_log = {name for name, taken in found.items() if "--bootstrap-servers" in taken}
    assert {"topics list", "connect file", "groups reset", "state rebuild", "run", "datagen", "doctor"} <= over_a_log
    assert [name for name in over_a_log if "--command-config" not in found[name]] == []
    assert "--command-config" in found["query get"]


def test_command_config_of_a_broker_that_is_not_there(run, tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("sasl.mechnism=PLAIN\n")
    code, _, err = run("topics", "list", "-b", "127.0.0.1:1", "--command-config", file)
    assert code == 1
    assert "sasl.mechanism" in err
    code, _, err = run("topics", "list", "-b", "127.0.0.1:1", "--command-config", tmp_path / "none")
    assert code == 1
    assert "cannot be read" in err


def test_connect_file_once(run, log, tmp_path):
    file = tmp_path / "app.log"
    file.write_text("a\nb\n")
    for expected in ("2 lines", "0 lines"):
        code, _, err = run("connect", "file", "--path", file, "--topic", "lines", "--once", "-b", log)
        assert code == 0
        assert expected in err
    assert run("connect", "file", "--path", tmp_path / "none", "--topic", "lines", "--once", "-b", log)[0] == 1


def test_datagen(run, log):
    first, second = (run("datagen", "access-log", "-n", 5, "--seed", 1, "--start", 0)[1] for _ in range(2))
    assert first == second
    assert len(first.splitlines()) == 5
    assert run("datagen", "shop", "-n", 20, "--to-topics", "-b", log)[0] == 0
    topics = {t["name"]: t["records"] for t in json.loads(run("topics", "list", "--json", "-b", log)[1])}
    assert set(topics) == {"users", "items", "orders"}
    assert run("datagen", "clicks", "-n", 5, "--rate", 0)[0] == 1


def test_doctor_and_version(run, monkeypatch):
    assert "pyspark" in json.loads(run("version", "--json")[1])
    monkeypatch.setenv("JAVA_HOME", "/no/such/java")
    code, out, _ = run("doctor", "--json")
    assert code == 1
    java = next(f for f in json.loads(out)["findings"] if f["name"] == "Java")
    assert not java["ok"]
    assert "JAVA_HOME" in java["remedy"]


def test_doctor_names_the_application_whose_file_is_missing_and_not_the_broker(run, tmp_path):
    missing = tmp_path / "no-such.py"
    code, out, _ = run("doctor", "-b", "127.0.0.1:1", missing, "--json")
    assert code == 1
    (finding,) = [each for each in json.loads(out)["findings"] if str(missing) in each["found"]]
    assert finding["name"] == f"application {missing}"


def test_doctor_refuses_settings_of_no_broker(run):
    code, _, err = run("doctor", "-c", "state.dir=x")
    assert code == 1
    assert "Name brokers with -b." in err


def test_doctor_names_a_setting_that_there_is_not_and_not_the_broker(run):
    code, out, _ = run("doctor", "-b", "127.0.0.1:1", "-c", "nosuch.setting=1", "--json")
    assert code == 1
    (finding,) = [each for each in json.loads(out)["findings"] if "nosuch.setting" in each["found"]]
    assert finding["name"] == "settings"


def test_demo_without_a_name_is_the_one_that_there_is(run, tmp_path):
    code, _, err = run("demo", "--file", tmp_path / "no-such.log")
    assert code == 1
    assert "no-such.log" in err


def test_help_is_quick_and_plain_without_a_terminal():
    script = Path(sys.executable).parent / "penstock"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [script, "--help"], capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "100"}
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime - before.ru_utime < 2, "usual is a third of a second of the processor's time"
    assert "\x1b[" not in done.stdout
    code = "import sys, penstock.cli.main; print([m for m in ('polars', 'pyarrow', 'pyspark') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_lines_that_are_no_text_are_produced_as_bytes(run, log, tmp_path):
    lines = tmp_path / "lines"
    lines.write_bytes(b"k\xff=\xfe\x00v\r\nplain\n")
    run("topics", "create", "t", "-b", log)
    produce = ("topics", "produce", "t", "--file", lines, "--separator", "=", "-b", log)
    assert run(*produce, "--key-format", "bytes", "--value-format", "bytes")[0] == 0
    with open_log(str(log)) as topics:
        found = topics.read("t", 0, 0).records.to_pylist()
    assert [(row["key"], row["value"]) for row in found] == [(b"k\xff", b"\xfe\x00v"), (None, b"plain")]


def test_a_line_that_is_refused_is_named(run, log, tmp_path):
    lines = tmp_path / "lines"
    lines.write_bytes(b"1\n2\n\xff\n4\n")
    run("topics", "create", "t", "-b", log)
    code, _, err = run("topics", "produce", "t", "--file", lines, "-b", log)
    assert code == 1
    assert f"line 3 of {lines}: the value b'\\xff' is not text in UTF-8" in err
    assert "--value-format bytes" in err
    lines.write_text("1\ntwo\n")
    code, _, err = run("topics", "produce", "t", "--value-format", "long", "--file", lines, "-b", log)
    assert code == 1
    assert "line 2" in err
    assert "'two' is not a long" in err


def test_a_missing_source_topic_is_named_with_the_command_that_creates_it_in_the_same_log(tmp_path):
    from penstock import StreamsBuilder, StreamsConfig
    from penstock.engines.application.planning import create_sources, plan_for
    from penstock.errors import UnknownTopicError

    builder = StreamsBuilder()
    builder.stream("lines").to("copies")
    topology = builder.build()
    settings = {"application.id": "a", "bootstrap.servers": f"sqlite:///{tmp_path}/my logs.db"}
    with open_log(settings["bootstrap.servers"]) as topics:
        create_sources(topology, StreamsConfig(settings), topics)
        with pytest.raises(UnknownTopicError) as caught:
            plan_for(topology, StreamsConfig(settings), topics)
        assert f"penstock topics create lines -b '{tmp_path}/my logs.db'" in caught.value.hint
        create_sources(topology, StreamsConfig({**settings, "penstock.source.partitions": 3}), topics)
        assert topics.partitions("lines") == 3
        plan_for(topology, StreamsConfig(settings), topics)


def test_internal_topics_are_folded(run, log):
    for name in ("shop", "shop-orders", "shop-by-user-changelog", "shop-by-user-repartition", "other-sums-changelog"):
        run("topics", "create", name, "-b", log)
    with open_log(str(log)) as topics:
        topics.commit_offsets("shop", {TopicPartition("shop-orders", 0): 0})
    out = run("topics", "list", "-b", log)[1]
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["other-sums-changelog", "shop", "shop-orders", "and"]
    assert "2 internal topics of shop" in out
    assert "shop-by-user-repartition" in run("topics", "list", "--all", "-b", log)[1]
    internal = [row["name"] for row in json.loads(run("topics", "list", "--json", "-b", log)[1]) if row["internal"]]
    assert internal == ["shop-by-user-changelog", "shop-by-user-repartition"]


@pytest.mark.parametrize(
    ("words", "named", "target", "rest"),
    [
        (["app.py:topology", "counts", "k"], {}, "app.py:topology", ["counts", "k"]),
        (["pkg.app", "counts"], {}, "pkg.app", ["counts"]),
        (["counts", "k"], {"checkpoint": "/c"}, "", ["counts", "k"]),
        (["app:topology", "counts"], {"checkpoint": "/c"}, "app:topology", ["counts"]),
        (["counts"], {"url": "http://h"}, "", ["counts"]),
    ],
)
def test_whose_stores_a_query_reads(words, named, target, rest):
    from penstock.cli.application.query import QueryOptions

    assert QueryOptions(**named).split(words, most=2) == (target, rest)


@pytest.mark.parametrize(
    ("words", "owner"),
    [
        (["stores", "shop", "-b", "sqlite:///shop.db", "-c", "state.dir=x"], "an application of the log"),
        (["stores", "--checkpoint", "here", "-c", "state.dir=x"], "a checkpoint"),
        (["stores", "--url", "http://127.0.0.1:1", "--config-file", "app.toml"], "a query server"),
    ],
)
def test_query_refuses_settings_that_would_change_nothing(run, words, owner):
    code, _, err = run("query", *words)
    assert code != 0
    assert f"has settings for a topology, and {owner} has its own" in " ".join(err.split())


@pytest.mark.parametrize("words", [["app.py:topology"], ["app.py:topology", "counts", "k", "more"]])
def test_a_query_that_is_too_short_or_too_long(run, words):
    code, _, err = run("query", *words)
    assert code == 1
    assert "MODULE:TOPOLOGY STORE [KEY]" in err


def test_a_query_goes_to_the_log_that_is_named_like_everywhere(run, log, tmp_path, monkeypatch):
    program = tmp_path / "counting.py"
    program.write_text(
        "from penstock import StreamsBuilder\nbuilder = StreamsBuilder()\nbuilder.stream('t').group_by_key().count('c')\n"
        "topology = builder.build()\nconfig = {'application.id': 'a', 'default.key.serde': 'string', 'default.value.serde': "
        f"'string', 'state.dir': {str(tmp_path)!r}}}\n"
    )
    run("topics", "create", "t", "-b", log)
    assert "bootstrap.servers" in run("query", "stores", f"{program}:topology")[2]
    assert run("query", "stores", f"{program}:topology", "-b", log)[0] == 0
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP_SERVERS", str(log))
    assert run("query", "stores", f"{program}:topology")[0] == 0


def test_version_and_completion(run):
    from penstock.base.version import __version__

    assert run("--version")[1] == f"penstock {__version__}\n"
    as_module = subprocess.run(
        [sys.executable, "-m", "penstock", "--version"], capture_output=True, text=True, check=True
    )
    assert as_module.stdout == f"penstock {__version__}\n"
    asked = {"_PENSTOCK_COMPLETE": "complete_bash", "COMP_CWORD": "5"}
    words = "penstock topics consume t --key-format windowed<str"
    done = subprocess.run(
        [Path(sys.executable).with_name("penstock")],
        env={**os.environ, **asked, "COMP_WORDS": words},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == [f"windowed<string,{size}>" for size in (60_000, 3_600_000, 86_400_000)]


def test_consume_reads_as_the_application_writes(run, log):
    from penstock import Serdes
    from penstock.log.clients.producer import Producer
    from penstock.log.topic_formats import TopicFormat, note_formats
    from penstock.serde.windowed import Window, Windowed

    run("topics", "create", "out", "-b", log)
    key = Serdes.time_windowed("string", 60_000).serialize(Windowed("linux", Window(120_000, 180_000)))
    with open_log(str(log)) as topics:
        with Producer(topics) as producer:
            producer.send("out", Serdes.long().serialize(7), key=key, timestamp=0)
        note_formats(topics, "app", {"out": TopicFormat("windowed<string,60000>", "long")})
    shown = run("topics", "consume", "out", "-b", log)[1]
    assert shown == "0@0  1970-01-01T00:00:00.000Z  linux 1970-01-01T00:02:00Z/1970-01-01T00:03:00Z  7\n"
    code, out, _ = run("topics", "consume", "out", "--key-format", "bytes", "--json", "-b", log)
    assert (code, json.loads(out)["value"]) == (0, 7)


@pytest.mark.parametrize(("answer", "code", "is_there"), [("y\n", 0, False), ("n\n", 1, True), ("", 1, True)])
def test_a_topic_is_deleted_without_a_terminal_only_by_an_answer_or_yes(
    run, tmp_path, monkeypatch, answer, code, is_there
):
    log = str(tmp_path / "log.db")
    run("topics", "create", "t", "-b", log)
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    found, _, errors = run("topics", "delete", "t", "-b", log)
    assert found == code
    assert ("Give --yes" in errors) == (answer == "")
    assert ('"t"' in run("topics", "list", "-b", log, "--json")[1]) == is_there
    assert run("topics", "delete", "t", "-b", log, "--yes")[0] == (0 if is_there else 1)


def test_a_full_disk_and_a_closed_pipe_are_said_once():
    """By a process: what it has not written is tried again at its end."""
    penstock = [sys.executable, "-m", "penstock"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*penstock, "version"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: nothing more can be written: No space left on device\nHint: Free disk space")
    assert "ignored" not in done.stderr
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*penstock, "version", "--json"], stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert done.stderr == ""


def test_the_command_run_as_a_module_names_a_missing_package_too():
    program = (
        "import runpy, sys; sys.modules['uvicorn'] = None; runpy.run_module('penstock.cli.main', run_name='__main__')"
    )
    command = [sys.executable, "-c", program, "registry", "start", "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "this command needs the package uvicorn, which is not installed" in done.stderr
    assert 'pip install "penstock[registry]"' in done.stderr


@pytest.mark.parametrize(
    ("target", "text", "said"),
    [
        ("", None, "'' is not a module or a file of Python"),
        (".", None, "'.' is not a module or a file of Python"),
        (".app", None, "'.app' is not a module or a file of Python"),
        ("folder/app.py", None, "there is no file folder/app.py"),
        ("app.py", "def x(:", "app.py cannot be imported: SyntaxError: invalid syntax (app.py, line 1)\n"),
        ("app", "def x(:", "app cannot be imported: SyntaxError: invalid syntax (app.py, line 1)\n"),
        ("app.py", "raise SystemExit(3)", "app.py ends the process while it is imported, by sys.exit(3) at "),
        ("app", "import sys\nsys.exit()", "app ends the process while it is imported, by sys.exit(None) at "),
        (
            "app.py",
            "import not_there",
            "app.py cannot be imported: ModuleNotFoundError: No module named 'not_there' at ",
        ),
    ],
)
def test_a_module_that_cannot_be_loaded_says_why(run, tmp_path, monkeypatch, target, text, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "app", raising=False)
    if text is not None:
        (tmp_path / "app.py").write_text(text)
    code, _, errors = run("describe", target)
    assert code == 1
    assert errors.startswith(f"error: {said}")
    assert "<frozen" not in errors


def test_more_partitions_than_a_request_may_make_are_refused(run, tmp_path):
    log = tmp_path / "log.db"
    code, _, errors = run("topics", "create", "a", "--partitions", "1000000000", "-b", log)
    assert (code, "1,000,000,000 new partitions at once" in errors) == (1, True)
    assert run("topics", "create", "a", "--partitions", "3", "-b", log)[0] == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--port", "0"), "port 0 of the broker"),
        (("--port", "99999999"), "port 99999999 of the broker"),
        (("--controller-port", "-1"), "port -1 of the broker"),
        (("--dir", "file"), "file is not a folder"),
    ],
)
def test_a_broker_that_cannot_be_is_refused_with_a_sentence(run, tmp_path, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    code, _, errors = run("broker", "start", *options)
    assert code == 1
    assert said in errors
    assert "not a message for users" not in errors


@pytest.mark.parametrize("time", ["9" * 20, "9" * 5000, "\u00b2", "--5", "now"])
def test_a_time_that_is_none_is_refused_with_a_sentence(run, tmp_path, time):
    log = tmp_path / "log.db"
    assert run("topics", "create", "t", "-b", log)[0] == 0
    code, _, errors = run("topics", "produce", "t", "--value", "v", f"--timestamp={time}", "-b", log)
    assert (code, "error: --timestamp is " in errors) == (1, True)
    assert run("topics", "consume", "t", f"--from-time={time}", "-b", log)[0] == 1
