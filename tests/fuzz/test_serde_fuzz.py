"""A sample of malformed records of every serde; ``python tests/fuzz/serde_fuzz.py 10000`` runs more of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from penstock.testing import EmbeddedRegistry
from serde_fuzz import check, serdes, topic_of

SERDES = serdes(None)
FRAMED = [name for name, (serde, _) in SERDES.items() if hasattr(serde, "for_topic")]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of lines that say what was dropped."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", SERDES)
def test_no_good_record_is_lost_among_malformed_ones(name: str) -> None:
    check(name, *SERDES[name], count=45, seed=3)


@pytest.mark.parametrize("name", FRAMED)
def test_nor_with_a_registry(name: str) -> None:
    with EmbeddedRegistry() as registry:
        serde, values = serdes(registry.url)[name]
        check(name, serde.for_topic(topic_of(name), "value"), values, count=45, seed=4)  # type: ignore[attr-defined]
