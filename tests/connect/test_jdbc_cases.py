"""Recorded cases of Confluent's JDBC source and sink, over SQLite, PostgreSQL and MariaDB."""

import pytest

from connect_jdbc import JdbcRunner, compared, load_jdbc_cases
from jdbc_differences import DIFFERENT
from mariadb_server import mariadb
from postgres_server import postgres

__all__ = ["mariadb", "postgres"]

CASES = {case["name"]: case for case in load_jdbc_cases()}
COMMON = [
    "sink_{}_defaults_kept_null", "sink_{}_delete_then_insert", "sink_{}_into_time_zone", "sink_{}_pk_kafka_names",
    "sink_{}_reported_duplicate", "sink_{}_string_value_whitelist", "sink_{}_tombstone_refused",
    "sink_{}_upsert_key_struct", "source_{}_both_equal_times", "source_{}_granularity_nanos_iso_datetime_string",
    "source_{}_incrementing_decimal_scale", "source_{}_incrementing_missing_column", "source_{}_quoted_names",
    "source_{}_renamed_column", "source_{}_timestamp_equal_times", "source_{}_zone_dst_gap_and_fold",
]  # fmt: skip
SAMPLE = [
    *(name.format(kind) for kind in ("sqlite", "postgres", "mariadb") for name in COMMON),
    "sink_mariadb_defaults", "sink_mariadb_type_timestamp", "sink_postgres_defaults",
    "sink_postgres_into_integer_of_decimal_2", "sink_sqlite_config_backoff_negative", "sink_sqlite_into_timestamp",
    "source_mariadb_incrementing_found", "source_mariadb_type_int_unsigned", "source_mariadb_type_time_6",
    "source_postgres_bulk", "source_postgres_incrementing_found_identity", "source_postgres_query_incrementing",
    "source_postgres_zone_berlin", "source_sqlite_config_topic_prefix_bad", "source_sqlite_type_smallint",
    "source_sqlite_zone_iso_strings",
]  # fmt: skip


@pytest.fixture
def differences(request):
    """A function: the differences of a case, over a server of this session."""

    def run(name):
        case = CASES[name]
        servers = {"sqlite": None}
        if case["database"] != "sqlite":
            servers[case["database"]] = request.getfixturevalue(case["database"])
        return JdbcRunner(servers).run(case)

    return run


@pytest.mark.parametrize("name", SAMPLE)
def test_a_recorded_case_comes_out_the_same(differences, name):
    assert differences(name) == []


def test_what_differs_is_found():
    record = {"topic": "t", "partition": {}, "offset": {"incrementing": 1}}
    value = {"schema": {"type": "struct", "fields": []}, "payload": {"id": 1}}
    other = {**value, "payload": {"id": 2}}
    wanted = {"records": [{**record, "value": value}]}
    assert compared(wanted, {"records": [{**record, "value": value}]}) == []
    assert compared(wanted, {"records": [{**record, "value": other}]}) == [
        "record 0 of t: payload/id: 1 expected, got 2"
    ]
    assert compared(wanted, {"records": []}) == ['record 0 of t is missing: {"id": 1}']
    assert compared({"rows": [["1"]]}, {"rows": [["2"]]}) == ['rows: [["1"]] expected, got [["2"]]']
    assert compared({}, {"error": "no"}) == ["it fails with 'no'"]
    assert compared({"error": ["x.Y: No fields found"]}, {"error": "other"}) != []
    assert compared({"error": ["x.Y: No fields found"]}, {"error": "No fields found: t"}) == []


def test_each_listed_difference_is_a_case():
    assert set(DIFFERENT) <= set(CASES)
    assert not set(SAMPLE) & set(DIFFERENT)


@pytest.mark.whole
@pytest.mark.parametrize("name", sorted(set(CASES) - set(SAMPLE)))
def test_all_recorded_cases_come_out_the_same_or_are_listed_as_different(differences, name):
    assert bool(differences(name)) is (name in DIFFERENT)
