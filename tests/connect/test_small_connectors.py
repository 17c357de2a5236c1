"""The datagen source, and the words about settings."""

from penstock.connect.connectors import LIBRARY
from penstock.connect.connectors.datagen import DatagenSource
from penstock.connect.testing import ConnectTestDriver, Step


def test_generated_records_go_on_after_a_crash_and_are_those_of_the_seed():
    def records(*crashes):
        config = {"quickstart": "access-log", "iterations": 300, "rate": 1e9, "seed": 7}
        driver = ConnectTestDriver(DatagenSource, config)
        for crash in crashes:
            driver.poll(crash=crash)
        while driver.poll():
            pass
        return [record.value for record in driver.read("access_log")]

    whole = records()
    assert len(whole) == 300
    assert records(Step.POLLED, Step.WRITTEN, Step.COMMITTED) == whole


def test_every_setting_of_every_connector_is_documented():
    for connector in LIBRARY:
        assert connector.__doc__, connector
        assert all(setting.doc for setting in connector.config), connector
