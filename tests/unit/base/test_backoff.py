"""The pauses between attempts."""

from penstock.base.backoff import Backoff


def test_pauses_double_up_to_the_longest():
    backoff = Backoff(0.25, 1.5)
    assert [backoff.pause_s(failures) for failures in (1, 2, 3, 4, 5, 10**6)] == [0.25, 0.5, 1.0, 1.5, 1.5, 1.5]


def test_another_factor_and_a_first_pause_that_is_the_longest():
    assert [Backoff(1.0, 100.0, 3.0).pause_s(failures) for failures in (1, 2, 3)] == [1.0, 3.0, 9.0]
    assert Backoff(5.0, 2.0).pause_s(1) == 2.0
    assert Backoff(0.0, 2.0).pause_s(7) == 0.0


def test_jitter_makes_pauses_shorter_by_at_most_its_share():
    pauses = {Backoff(1.0, 8.0, jitter=0.5).pause_s(4) for _ in range(200)}
    assert len(pauses) > 1
    assert all(4.0 <= pause <= 8.0 for pause in pauses)
