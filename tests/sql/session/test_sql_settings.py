"""Settings of SQL: obeyed, refused with a sentence, or accepted with a warning; none is ignored without a word."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from penstock.errors import ConfigError, SqlError
from penstock.sql.session import SessionSettings, SqlSession
from penstock.sql.session.session_settings import FIXED, FLAGS, KNOWN, NUMBERS, REFUSED, WITHOUT_EFFECT, check_setting

SOURCES = Path(__file__).parents[3] / "src" / "penstock" / "sql"


@pytest.fixture
def session(tmp_path: Path):
    with SqlSession({"bootstrap.servers": f"memory://{tmp_path.name}"}, queries="wait") as made:
        yield made


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_each_setting_that_is_listed_is_read_somewhere(name: str) -> None:
    texts = [path.read_text() for path in SOURCES.rglob("*.py") if path.name != "session_settings.py"]
    own = (SOURCES / "session" / "session_settings.py").read_text()
    tail = name.rsplit(".", 1)[-1]
    read = any(f'"{name}"' in text or f"'{name}'" in text for text in texts) or own.count(f'"{name}"') > 1
    assert (
        read
        or any(f'.{tail}"' in text and "ksql.functions" in text for text in texts)
        or name
        in (
            "ksql.functions.collect_list.limit",
            "ksql.functions.collect_set.limit",
        )
    )


@pytest.mark.parametrize("name", sorted(FLAGS))
def test_what_is_true_or_false_is_nothing_else(name: str) -> None:
    check_setting(name, "true")
    check_setting(name, "False")
    with pytest.raises(ConfigError, match="is true or false, not 'yes'"):
        check_setting(name, "yes")


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_numbers_are_numbers(name: str) -> None:
    check_setting(name, "3")
    with pytest.raises(ConfigError, match="is a whole number, not 'many'"):
        check_setting(name, "many")


@pytest.mark.parametrize("name", sorted(FIXED))
def test_what_has_one_value_refuses_another_with_the_reason(session: SqlSession, name: str) -> None:
    only, reason = FIXED[name]
    session.execute(f"SET '{name}' = '{only}';")
    with pytest.raises(SqlError) as raised:
        session.execute(f"SET '{name}' = 'other';")
    assert reason in raised.value.message


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_would_mislead_is_refused_with_what_takes_its_place(session: SqlSession, name: str) -> None:
    whole = f"{name}x" if name.endswith(".") else name
    with pytest.raises(SqlError) as raised:
        session.execute(f"SET '{whole}' = '1';")
    assert REFUSED[name] in raised.value.message
    with pytest.raises(ConfigError, match="cannot be set"):
        SessionSettings.of({whole: "1"})


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_what_has_no_effect_says_so(session: SqlSession, caplog: pytest.LogCaptureFixture, name: str) -> None:
    whole = f"{name}x" if name.endswith(".") else name
    (result,) = session.execute(f"SET '{whole}' = '1';")
    assert result.text == f"{whole} is 1, which has no effect here"
    with caplog.at_level(logging.WARNING):
        settings = SessionSettings.of({whole: "1"})
    assert f"settings of ksqlDB without effect here: {whole}" in caplog.text
    assert set(settings.app_settings("Q", settings.statements)) == set(settings.app_settings("Q", {}))


def test_settings_of_the_registry_may_have_the_name_that_ksqldb_has() -> None:
    settings = SessionSettings.of({"ksql.schema.registry.url": "mock://one"})
    assert settings.app == {"schema.registry.url": "mock://one"}
    assert settings.statements == {}


def test_replicas_of_internal_topics_are_those_of_the_application() -> None:
    found = SessionSettings.of({}).app_settings("Q", {"ksql.internal.topic.replicas": "3"})
    assert found["replication.factor"] == "3"


def test_python_functions_are_not_loaded_where_they_are_switched_off(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("from penstock.sql.functions import udf\n\n\n@udf\ndef twice(n: int) -> int:\n    return n * 2\n")
    config = {"ksql.extension.modules": str(file)}
    assert "TWICE" in SessionSettings.of(config).functions().declared
    assert not SessionSettings.of({**config, "ksql.udfs.enabled": False}).functions().declared


def test_settings_of_functions_go_to_the_functions(session: SqlSession) -> None:
    session.execute("SET 'ksql.functions.in_currency.rate' = '2';")
    assert session.catalog.settings == {"ksql.functions.in_currency.rate": "2"}
