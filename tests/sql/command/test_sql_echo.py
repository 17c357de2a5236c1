"""What is typed while a statement runs: not shown, not lost."""

from __future__ import annotations

import io
import os
import sys

import pytest

from penstock.cli.sql.prompt import unechoed

termios = pytest.importorskip("termios")


@pytest.fixture
def terminal():
    import pty

    other, own = pty.openpty()
    with os.fdopen(own, "r") as stream:
        yield other, stream
    os.close(other)


def echoes(stream) -> bool:
    return bool(termios.tcgetattr(stream.fileno())[3] & termios.ECHO)


def test_the_echo_is_off_while_a_statement_runs_and_comes_back(terminal) -> None:
    other, stream = terminal
    assert echoes(stream)
    with unechoed(stream):
        assert not echoes(stream)
        os.write(other, b"SHOW STREAMS;\n")
    assert echoes(stream)
    assert stream.readline() == "SHOW STREAMS;\n", "the next prompt reads it"


def test_the_echo_comes_back_after_an_error(terminal) -> None:
    _, stream = terminal
    with pytest.raises(KeyboardInterrupt), unechoed(stream):
        raise KeyboardInterrupt
    assert echoes(stream)


def test_an_input_that_is_no_terminal_is_left_alone(tmp_path) -> None:
    with unechoed(io.StringIO("x")):
        pass
    with (tmp_path / "file").open("w+") as file, unechoed(file):
        assert sys.stdin is not file
