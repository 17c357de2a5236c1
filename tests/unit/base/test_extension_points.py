"""Extensions are found by name, checked, and refused with the name of their distribution."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock import KafkaStreams, StreamsBuilder
from penstock.base.extension_points import ExtensionPoint
from penstock.engines.extensions import ApplicationExtensions
from penstock.errors import ConfigError, EnvironmentProblemError, PenstockError
from penstock.extensions import APPLICATIONS, LANGUAGES, ApplicationExtension

SHOUTERS = "example.shouters"


def installed(folder: Path, distribution: str, entry: str, text: str = "") -> None:
    """Install a distribution with one entry point in a folder, as pip does."""
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{SHOUTERS}]\n{entry}\n")
    (folder / f"{distribution}_module.py").write_text(text)


@pytest.fixture
def point(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    return ExtensionPoint(SHOUTERS, callable, "a function of a text")


def test_installed_extensions_are_found_and_imported_when_they_are_used(point, tmp_path):
    for name in ("one", "two", "three"):
        installed(tmp_path, name, f"{name} = {name}_module:shout", f"shout = lambda text: text + '{name}'")
    assert point.names() == ["one", "three", "two"]
    assert "two_module" not in sys.modules
    assert point.get("two")("hey ") == "hey two"
    assert point.get("two") is point.get("two")
    assert sorted(shout("") for shout in point.all().values()) == ["one", "three", "two"]
    for name in ("one", "two", "three"):
        del sys.modules[f"{name}_module"]


def test_registered_extensions_take_the_place_of_installed_ones(point, tmp_path):
    installed(tmp_path, "quiet", "loud = quiet_module:shout")
    point.register("loud", str.upper)
    assert point.all() == {"loud": str.upper}
    point.unregister("loud")
    with pytest.raises(EnvironmentProblemError, match=r"'loud' .*quiet_module:shout of quiet, cannot be imported"):
        point.get("loud")
    del sys.modules["quiet_module"]


def test_what_is_not_there_is_refused_with_what_is(point):
    with pytest.raises(EnvironmentProblemError, match=r"no extension 'loud' .* there are: none"):
        point.get("loud")
    point.register("quiet", str.lower)
    with pytest.raises(EnvironmentProblemError, match="there are: quiet"):
        point.get("loud")


def test_two_distributions_with_one_name_are_refused(point, tmp_path):
    installed(tmp_path, "first", "loud = first_module:shout")
    installed(tmp_path, "second", "loud = second_module:shout")
    with pytest.raises(ConfigError, match=r"two extensions 'loud' .* of first|two extensions 'loud' .* of second"):
        point.names()


def test_what_is_no_extension_is_refused(point, tmp_path):
    installed(tmp_path, "wrong", "loud = wrong_module:shout", "shout = 7")
    with pytest.raises(ConfigError, match=r"must be a function of a text, not 7 \(wrong_module:shout of wrong\)"):
        point.get("loud")
    with pytest.raises(ConfigError, match="registered in this process"):
        point.register("mine", 8)
    with pytest.raises(ConfigError, match=r"subclass of penstock\.extensions\.ApplicationExtension, not <class 'int'>"):
        APPLICATIONS.register("number", int)
    del sys.modules["wrong_module"]


def test_penstock_names_its_own_without_importing_them():
    code = (
        "import sys; from penstock.extensions import APPLICATIONS, LANGUAGES;"
        "print(APPLICATIONS.names(), LANGUAGES.names(), *(m for m in sys.modules if m.startswith("
        "('penstock.console', 'penstock.sql'))))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "['connectors', 'console'] ['sql']\n"


def test_a_topology_speaks_a_language_that_is_registered():
    def copied(builder, text, session=None):
        assert session is None
        return builder.stream(text)

    LANGUAGES.register("sql", copied)
    try:
        builder = StreamsBuilder()
        builder.sql("words").to("copies")
        assert "words" in str(builder.build().describe())
    finally:
        LANGUAGES.unregister("sql")


class Noisy(ApplicationExtension):
    """Fails wherever it can."""

    def is_stop_requested(self) -> bool:
        raise ValueError("stop")

    def failed(self, error: PenstockError) -> None:
        raise ValueError("failed")

    def exposition(self) -> str:
        raise ValueError("exposition")

    def close(self) -> None:
        raise ValueError("close")


class Calm(ApplicationExtension):
    """Notes what it hears of."""

    heard: list[str]

    def failed(self, error: PenstockError) -> None:
        self.heard = [error.message]

    def is_stop_requested(self) -> bool:
        return True

    def exposition(self) -> str:
        return "calm 1\n"

    def alerts(self) -> list[dict[str, str]]:
        return [{"name": "calm"}]

    def close(self) -> None:
        self.heard.append("closed")


@pytest.mark.logs_error("of the extension a-noisy has raised")
def test_an_extension_that_fails_holds_up_neither_the_application_nor_the_others(tmp_path, caplog):
    settings = {"application.id": "app", "bootstrap.servers": f"sqlite:///{tmp_path / 'log.db'}"}
    builder = StreamsBuilder()
    builder.stream("a").to("b")
    app = KafkaStreams(builder.build(), settings)
    calm: list[Calm] = []
    APPLICATIONS.register("a-noisy", Noisy)
    APPLICATIONS.register("calm", noted_in(calm))
    extensions = ApplicationExtensions()
    try:
        extensions.load(app._handle())
    finally:
        APPLICATIONS.unregister("a-noisy")
        APPLICATIONS.unregister("calm")
    assert [extensions.is_stop_requested() for _ in range(3)] == [True] * 3
    assert "calm 1\n" in extensions.exposition()
    assert {"name": "calm"} in extensions.alerts()
    extensions.failed(PenstockError("no water"))
    extensions.close()
    assert calm[0].heard == ["no water", "closed"]
    assert caplog.text.count("of the extension a-noisy has raised") == 4


def noted_in(made: list[Calm]) -> type[Calm]:
    """A Calm that notes its instances."""

    class Noted(Calm):
        def __init__(self, application):
            super().__init__(application)
            made.append(self)

    return Noted
