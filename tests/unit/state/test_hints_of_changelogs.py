"""Hints of errors in changelogs fit both modes: continuous mode has no segments."""

from __future__ import annotations

import pytest

from penstock.errors import StateError
from penstock.state.changelog.changelog_restore import reading_changelog
from penstock.state.changelog.formats import TaskNumbers


def test_hints_say_what_to_do_in_each_mode() -> None:
    with pytest.raises(StateError) as of_store, reading_changelog("counts"):
        raise ValueError
    with pytest.raises(StateError) as of_numbers:
        TaskNumbers.parse(b"none")
    for caught in (of_store, of_numbers):
        hint = str(caught.value.hint)
        assert "segments" not in hint
        assert "In micro-batches" in hint
        assert "in continuous mode" in hint
