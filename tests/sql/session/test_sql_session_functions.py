"""Python functions in sessions: from a setting, from a call, without a restart."""

from __future__ import annotations

import pytest

from penstock.errors import SqlError
from penstock.sql.functions import udf
from penstock.sql.session import SqlSession
from penstock.sql.session.journal import StatementJournal

CLICKS = "CREATE STREAM clicks (id INT KEY, page STRING) WITH (kafka_topic='clicks', format='JSON', partitions=1);"
QUERY = "CREATE STREAM loud AS SELECT id, SHOUTED(page) AS page FROM clicks;"
FILE = """
from penstock.sql.functions import udf

@udf(author="ann")
def shouted(text: str) -> str:
    \"\"\"A text in capitals.\"\"\"
    return text.upper() + "!"
"""


def test_functions_of_a_file_are_there_from_the_start(tmp_path):
    (tmp_path / "loud_functions.py").write_text(FILE)
    config = {
        "bootstrap.servers": str(tmp_path / "log.db"),
        "ksql.extension.modules": str(tmp_path / "loud_functions.py"),
    }
    with SqlSession(config, queries="wait") as session:
        session.execute(CLICKS + QUERY)
        assert session.catalog.sources["LOUD"].schema() == "`ID` INTEGER KEY, `PAGE` STRING"
        (described,) = session.execute("DESCRIBE FUNCTION shouted;")
    shown = repr(described)
    assert "SHOUTED(text STRING) STRING" in shown
    assert "A text in capitals." in shown
    assert "ann" in shown


def test_a_function_is_registered_while_the_session_runs(tmp_path):
    @udf
    def shouted(text: str) -> str:
        return text.upper()

    with SqlSession({"bootstrap.servers": str(tmp_path / "log.db")}, queries="wait") as session:
        session.execute(CLICKS)
        with pytest.raises(SqlError, match="No function has the name 'SHOUTED'"):
            session.execute(QUERY)
        assert session.register(shouted) == ("SHOUTED",)
        session.execute(QUERY)
        assert "LOUD" in session.catalog.sources


def test_a_missing_function_of_an_earlier_session_is_named_with_its_place_and_the_remedy(tmp_path):
    @udf
    def shouted(text: str) -> str:
        return text.upper()

    config = {"bootstrap.servers": str(tmp_path / "log.db")}
    with SqlSession(config, queries="wait") as session:
        session.register(shouted)
        session.execute(CLICKS + QUERY)
    with pytest.raises(SqlError) as raised:
        SqlSession(config, queries="wait")
    assert "CREATE STREAM loud AS SELECT" in raised.value.message
    assert "not loaded: SHOUTED (" in raised.value.message
    assert "test_sql_session_functions.py" in raised.value.message
    assert "ksql.extension.modules=" in raised.value.hint
    with SqlSession(config, queries="wait", functions=[shouted]) as again:
        assert again.holder is None, "the session that could not be opened holds nothing"
        assert "LOUD" in again.catalog.sources


def test_a_session_that_is_interrupted_while_it_opens_holds_nothing(tmp_path, monkeypatch):
    config = {"bootstrap.servers": str(tmp_path / "log.db")}

    def interrupted(journal: StatementJournal) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(StatementJournal, "read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            SqlSession(config, queries="wait")
    with SqlSession(config, queries="wait") as again:
        assert again.holder is None
        again.execute(CLICKS)
