from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.main import main

ROOT = Path(__file__).parents[3]
EXAMPLE = str(ROOT / "examples" / "access_log.py")


@pytest.fixture
def run(capsys, monkeypatch):
    """Runs a command; gives exit code, output and errors."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["penstock", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def log(tmp_path):
    return tmp_path / "topics.db"


def test_topics_from_creation_to_deletion(run, log):
    assert run("topics", "create", "t", "-p", 2, "-c", "retention.ms=-1", "-b", log)[0] == 0
    assert run("topics", "produce", "t", "--key", "k", "--value", "v", "--timestamp", 1000, "-b", log)[0] == 0
    code, out, _ = run("topics", "list", "-b", log, "--json")
    assert code == 0
    assert json.loads(out) == [{"name": "t", "partitions": 2, "records": 1}]
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
        (("topics", "produce", "t", "--value", "x", "--value-format", "long"), "is no long"),
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
    assert "t-0@0: the value is no long" in err


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
    for expected in ("2 line(s)", "0 line(s)"):
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
