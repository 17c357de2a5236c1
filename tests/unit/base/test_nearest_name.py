"""The names that were probably meant."""

from penstock.base.nearest_name import did_you_mean, nearest_names, question


def test_the_most_alike_comes_first_and_no_more_than_asked_for():
    known = ["orders-1", "orders-2", "orders", "payments"]
    assert nearest_names("order", known) == ["orders"]
    assert nearest_names("order", known, 2)[0] == "orders"
    assert len(nearest_names("order", known, 3)) == 3
    assert did_you_mean("zzz", known, 3) == ""


def test_capitals_are_no_difference_and_a_name_is_not_its_own_correction():
    assert did_you_mean("CLICKS", ["clicks", "Clicks-2"]) == "Did you mean clicks?"
    assert did_you_mean("linger_ms", ["linger.ms", "linger.us"]) == "Did you mean linger.ms?"
    assert did_you_mean("clicks", ["clicks", "orders"]) == ""


def test_a_long_name_costs_nothing():
    assert nearest_names("x" * 100_000, ["x" * 100_000 + "y"]) == []


def test_several_names_are_one_question():
    assert question("a", "", "b", "c") == "Did you mean a or b or c?"
    assert question() == ""
