"""Connectors and transformations as functions: their settings, what they may yield, where they are loaded from."""

import sys
import textwrap
from importlib.metadata import EntryPoint

import pyarrow as pa
import pytest

from penstock.connect import functions
from penstock.connect.config import Importance, Kind, Setting
from penstock.connect.functions import (
    Record,
    Settings,
    definition_of,
    installed_plugins,
    load_plugin,
    sink,
    source,
)
from penstock.connect.plugins import PluginKind, validate_connector
from penstock.connect.testing import ConnectTestDriver
from penstock.errors import ConfigError, ConnectError

FILE = """
    from penstock.connect.functions import Record, source, transform

    @source("Letters", topic=str, letters="abc")
    def letters(settings, offsets):
        first = offsets.get({}, {"at": 0})["at"]
        for at, letter in enumerate(settings.letters[first:], first):
            yield Record(settings.topic, letter, partition={}, offset={"at": at + 1})

    def shout(record):
        return record.with_(value=record.value.upper())

    @transform("Suffix", suffix="!")
    def suffix(record, settings):
        return record.with_(value=record.value + settings.suffix)

    number = 1
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text(textwrap.dedent(FILE))
    return tmp_path


def test_keywords_become_a_definition_that_the_rest_interface_shows():
    setting = Setting(name="mode", kind=Kind.STRING, default="a", importance=Importance.LOW)
    made = definition_of({"url": str, "poll_ms": 100, "rate": 1.5, "names": list, "on": True, "mode": setting})
    assert {s.name: (s.kind, s.required) for s in made} == {
        "url": (Kind.STRING, True),
        "poll.ms": (Kind.LONG, False),
        "rate": (Kind.DOUBLE, False),
        "names": (Kind.LIST, True),
        "on": (Kind.BOOLEAN, False),
        "mode": (Kind.STRING, False),
    }
    settings = Settings(made.parse({"url": "u", "names": "a, b", "poll.ms": "7"}))
    assert (settings.poll_ms, settings.names, settings.rate) == (7, ["a", "b"], 1.5)
    with pytest.raises(AttributeError, match=r"there is no setting 'pol\.ms'"):
        _ = settings.pol_ms
    with pytest.raises(ConfigError, match="the setting x is "):
        definition_of({"x": object()})


def test_wrong_functions_are_refused_at_their_decorator():
    with pytest.raises(ConfigError, match="not a generator"):
        source("A")(lambda settings, offsets: [])
    with pytest.raises(ConfigError, match="has 1 parameters"):
        sink("A")(lambda batch: None)


def test_a_file_gives_connectors_and_transformations(folder):
    plugins = installed_plugins([folder])
    config = {
        "name": "x",
        "connector.class": "mine.py:letters",
        "topic": "out",
        "transforms": "a,b",
        "transforms.a.type": "mine.py:shout",
        "transforms.b.type": "mine.py:suffix",
        "transforms.b.suffix": "?",
    }
    assert validate_connector(config, plugins)["error_count"] == 0
    driver = ConnectTestDriver("mine.py:letters", config, plugins=plugins)
    driver.poll()
    assert [record.value for record in driver.read("out")] == ["A?", "B?", "C?"]


def test_files_outside_of_the_folders_and_wrong_names_are_refused(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "other.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(ConfigError, match="there is no file"):
        load_plugin(f"{elsewhere / 'other.py'}:x", [folder])
    with pytest.raises(ConfigError, match="there is no file"):
        load_plugin(f"../{elsewhere.name}/other.py:x", [folder])
    with pytest.raises(ConfigError, match="has no 'nothing'"):
        load_plugin("mine.py:nothing", [folder])
    with pytest.raises(ConfigError, match="neither a connector nor a transformation"):
        load_plugin("mine.py:number", [folder])
    (folder / "broken.py").write_text("x = 1\ny = nothing\n")
    with pytest.raises(ConfigError, match=r"broken.py, line 2: NameError: name 'nothing'"):
        load_plugin("broken.py:x", [folder])


def test_installed_packages_are_found_by_their_entry_points(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    entries = [
        EntryPoint("letters", "mine:letters", "penstock.connectors"),
        EntryPoint("gone", "mine:gone", "penstock.connectors"),
    ]
    monkeypatch.setattr(functions, "_announced", lambda path: entries)
    problems = []
    plugins = installed_plugins(on_problem=problems.append)
    assert plugins.connector("Letters").kinds == (PluginKind.SOURCE,)
    assert len(problems) == 1
    assert "gone" in problems[0]
    with pytest.raises(ConfigError, match="gone"):
        installed_plugins()
    sys.modules.pop("mine", None)


def test_a_sink_takes_arrow_tables_if_it_says_so():
    tables = []

    @sink("Tables")
    def keep(settings, batch: pa.Table):
        tables.append(batch)

    driver = ConnectTestDriver(keep, {"topics": "in"})
    driver.produce("in", {"a": 1}, {"a": 2})
    driver.put()
    assert tables[0].to_pylist() == [{"a": 1}, {"a": 2}]


def test_what_a_source_may_not_yield_is_an_error_that_says_what_it_may():
    @source("Wrong")
    def wrong(settings, offsets):
        yield {"a": 1}

    with pytest.raises(ConnectError, match="the source yielded"):
        ConnectTestDriver(wrong, {}).poll()


def test_a_source_waits_as_long_as_it_says_and_ends_quietly():
    @source("Waiting")
    def waiting(settings, offsets):
        yield Record("out", 1)
        yield "300ms"
        yield Record("out", 2)

    driver = ConnectTestDriver(waiting, {})
    got = [[record.value for record in driver.poll()] for _ in range(3)]
    assert got == [[1], [2], []]


def test_headers_keys_and_times_of_a_record_are_written():
    @source("Full")
    def full(settings, offsets):
        yield Record("out", b"v".decode(), key="k", timestamp=7, headers={"h": "x"})

    driver = ConnectTestDriver(full, {})
    driver.poll()
    record = driver.read("out")[0]
    assert (record.key, record.timestamp, record.headers.last("h").value) == ("k", 7, "x")
