"""The check that fails a test when Penstock logs an exception and goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from swallowed_errors import SwallowedErrors


@pytest.fixture
def logger() -> Iterator[tuple[logging.Logger, SwallowedErrors]]:
    made, handler = logging.getLogger("example.of.swallowed"), SwallowedErrors()
    made.addHandler(handler)
    yield made, handler
    made.removeHandler(handler)


def test_logged_exceptions_are_found_once_with_their_traces(logger):
    log, found = logger
    try:
        {}["lost"]
    except KeyError:
        log.exception("figure %d could not be kept", 3)
        log.warning("a task did not stop", exc_info=True)
    texts = found.take([])
    assert [text.splitlines()[0].partition(": ")[2] for text in texts] == ["figure 3 could not be kept"]
    assert texts[0].endswith("KeyError: 'lost'")
    assert found.take([]) == []


def test_records_without_an_exception_and_declared_ones_pass(logger):
    log, found = logger
    log.error("a line without an exception")
    log.info("a detail", exc_info=KeyError("lost"))
    log.error("listener %s raised", "a", exc_info=KeyError("lost"))
    log.error("another", exc_info=KeyError("lost"))
    assert [text.splitlines()[0] for text in found.take([r"listener \w raised"])] == [
        "example.of.swallowed, in thread MainThread: another"
    ]


@pytest.mark.logs_error("a listener raised")
def test_the_check_reads_what_a_test_declares():
    logging.getLogger("penstock.example").error("a listener raised", exc_info=KeyError("lost"))
