"""The datagen source, and the words about settings."""

import json
from itertools import islice

import pytest

from penstock.connect.connectors import LIBRARY, datagen
from penstock.connect.connectors.datagen import GENERATORS, DatagenSource
from penstock.connect.record_generators import GeneratorSettings
from penstock.connect.testing import ConnectTestDriver, Step


def test_generated_records_go_on_after_a_crash_and_are_those_of_the_seed():
    def records(*crashes):
        config = {"quickstart": "access-log", "iterations": 300, "rate": 1e5, "seed": 7}
        driver = ConnectTestDriver(DatagenSource, config)
        for crash in crashes:
            driver.poll(crash=crash)
        while driver.poll():
            pass
        return [record.value for record in driver.read("access_log")]

    whole = records()
    assert len(whole) == 300
    assert records(Step.POLLED, Step.WRITTEN, Step.COMMITTED) == whole


@pytest.mark.parametrize(
    ("name", "most", "exactly_once"), [("access-log", 4, True), ("clicks", 4, False), ("shop", 50, True)]
)
def test_generated_records_come_once_and_in_order_whatever_crashes(monkeypatch, name, most, exactly_once):
    monkeypatch.setattr(datagen, "MOST", most)
    monkeypatch.setattr(datagen, "IDLE_S", 0)
    config = {"quickstart": name, "iterations": 12, "rate": 1e4, "seed": 3, "start.ms": 0}
    of_seed = [*GENERATORS[name](GeneratorSettings(seed=3, count=12, rate=1e4, start_ms=0))]
    values = {}
    for each in of_seed:
        values.setdefault(each.topic, []).append(each.value if each.key is None else json.loads(each.value))
    ConnectTestDriver.check_source(
        lambda: ConnectTestDriver(DatagenSource, config, exactly_once=exactly_once), values, runs=3, quiet_polls=4
    )


@pytest.mark.parametrize("converter", ["JsonConverter", "AvroConverter", "StringConverter"])
@pytest.mark.parametrize("name", GENERATORS)
def test_generated_records_have_keys_values_and_schemas_for_each_converter(name, converter):
    config = {"quickstart": name, "iterations": 5, "rate": 1e4, "kafka.topic": "own", "value.converter": converter}
    if converter == "AvroConverter":
        config["value.converter.schema.registry.url"] = f"mock://datagen-{name}"
    driver = ConnectTestDriver(DatagenSource, config)
    while not driver.poll():
        pass
    record = driver.read("own")[0]
    generated = next(islice(GENERATORS[name](GeneratorSettings(rate=1e4, start_ms=1_700_000_000_000)), 1))
    fields = None if generated.key is None else json.loads(generated.value)
    assert (record.key, record.timestamp) == (generated.key, generated.timestamp_ms)
    if fields is None:
        assert record.value == generated.value
    elif converter == "StringConverter":
        assert record.value == "Struct{" + ",".join(f"{field}={value}" for field, value in fields.items()) + "}"
    else:
        assert record.value.to_dict() == fields
    driver.stop()


def test_every_setting_of_every_connector_is_documented():
    for connector in LIBRARY:
        assert connector.__doc__, connector
        assert all(setting.doc for setting in connector.config), connector
