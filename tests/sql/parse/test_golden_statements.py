"""Statements of every production with their canonical text; malformed ones with their messages."""

import pytest
from goldens import MALFORMED, STATEMENTS, blocks, canonical, refusal

from penstock.sql.parse import parse_statement
from penstock.sql.parse.scripts import _TEST_RULES

GOOD = list(blocks(STATEMENTS))
BAD = list(blocks(MALFORMED))


@pytest.mark.parametrize(("given", "expected"), GOOD)
def test_the_canonical_text(given, expected):
    assert canonical(given) == expected


@pytest.mark.parametrize(("given", "expected"), GOOD)
def test_the_canonical_text_says_the_same(given, expected):
    assert parse_statement(expected, tests=True) == parse_statement(given, tests=True)
    assert canonical(expected) == expected


@pytest.mark.parametrize(("given", "expected"), BAD)
def test_the_message(given, expected):
    assert refusal(given) == expected
    assert expected != "nothing is wrong"


def test_the_files_are_complete():
    assert len({given for given, _ in GOOD}) == len(GOOD) >= 150
    assert len({given for given, _ in BAD}) == len(BAD) >= 200
    first = {given.split(maxsplit=1)[0].upper() for given, _ in GOOD}
    assert set(_TEST_RULES) <= first
