"""`penstock metrics` finds an application by its name in the log, and shows what its checkpoint has of it."""

import json

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import ConfigError, PenstockError

recorded = pytest.importorskip("recorded")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with recorded.recorded(tmp_path_factory.mktemp("metrics")) as found:
        found.settle(found.batches - 1)
        found.recorder._write()
        usual = found.root / "log.db.penstock" / recorded.APPLICATION
        usual.mkdir(parents=True)
        (usual / "checkpoint").symlink_to(found.root / "checkpoint")
        yield found


def run(place, *arguments):
    done = CliRunner().invoke(app, ["metrics", *arguments, "-b", place.log.url], catch_exceptions=True)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


@pytest.mark.parametrize("which", [(recorded.APPLICATION,), ()], ids=["by its name", "as the only one"])
def test_the_metrics_of_an_application_without_http(place, which):
    found = json.loads(run(place, *which, "--json"))
    values = {(one["name"], *sorted(one["tags"].values())): one["value"] for one in found["metrics"]}
    assert found["state"] == "RUNNING"
    assert values["batches-total",] == len(recorded.PROGRESS)
    assert values["records-in-total",] == sum(each.records_in for each in recorded.PROGRESS)
    assert values["position", "3", "access_log"] > 0
    assert any(name == "node-rows-in-total" for name, *_ in values)
    assert found["batch"]["number"] == place.batches - 1


def test_a_table_for_people_with_only_what_matches(place):
    shown = run(place, "--matching", "store-rows")
    assert "RUNNING" in shown
    assert "store-rows" in shown
    assert "lag-records" not in shown


def test_an_application_that_is_not_there_is_named_with_those_that_are(place):
    with pytest.raises(PenstockError, match="nobody") as refused:
        run(place, "nobody")
    assert recorded.APPLICATION in refused.value.hint


def test_a_wrong_expression_is_refused(place):
    with pytest.raises(ConfigError, match="regular expression"):
        run(place, "--matching", "(")


def test_a_log_without_applications_says_so(tmp_path):
    from penstock.log.open import open_log

    with open_log(f"sqlite:///{tmp_path / 'log.db'}"):
        pass
    done = CliRunner().invoke(app, ["metrics", "-b", f"sqlite:///{tmp_path / 'log.db'}"])
    assert isinstance(done.exception, PenstockError)
    assert "no application" in done.exception.message
