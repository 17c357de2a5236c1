"""Recorded scenarios of Debezium's connector for PostgreSQL, over a real server: the same records, byte for byte."""

import pytest

from connect_debezium import ARCHIVE, DIFFERENT, DebeziumRunner, load_debezium_cases
from postgres_server import postgres

__all__ = ["postgres"]

CASES = {case["name"]: case for case in load_debezium_cases()}
FOUND = {case["name"]: case for case in load_debezium_cases(ARCHIVE.with_name("debezium-found-cases.tar.xz"))}
SAMPLE = [
    "array_int4", "bad_message_key", "bit12", "bytea_base64", "column_mask_hash_v2", "column_propagate_types",
    "date_gregorian_switch", "ddl_change_pk", "defaults_forms", "down_rename_column", "enum", "extract_changed",
    "filter_include_alternation", "generated_column_full", "heartbeat_topic_prefix", "hstore_map", "incremental_snapshot",
    "interval_string", "message_key_full", "message_nontransactional", "names_field_avro_unicode", "notifications_sink",
    "numeric_38_10_precise", "numeric_nan_notnull", "outbox_router", "partition_root", "pk_update_notnull_columns",
    "pub_column_list", "restart_initial", "route_logical_table", "skip_unchanged_full", "slot_lost_when_needed",
    "snapshot_empty_table", "snapshot_table_order", "timestamp_far", "toast_int_array", "truncate_cascade",
    "tx_large", "tx_metadata_two_schemas", "tx_open_over_steps", "unwrap_add_fields", "wide_notnull",
]  # fmt: skip

FOUND_SAMPLE = [
    "comments_structs", "defaults_clock_isostring", "failure_skip_inc", "failure_warn_tx", "inc_after_initial", "inc_key_bool", "inc_key_bytea", "inc_key_date",
    "inc_key_float8", "inc_key_numeric", "inc_missing_table", "inc_notify_chunks", "inc_stop_paused", "inc_stopped_current",
    "inc_uuid_key", "propagate_structs", "random_15", "random_1010", "random_1039", "skip_c_alone",
]  # fmt: skip


@pytest.fixture(scope="module")
def runner(postgres):
    return DebeziumRunner(postgres)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_recorded_case_has_the_same_records(runner, name):
    assert runner.run(CASES[name]) == []


@pytest.mark.parametrize("name", FOUND_SAMPLE)
def test_a_scenario_that_once_differed_has_the_same_records(runner, name):
    assert runner.run(FOUND[name]) == []


@pytest.mark.whole
@pytest.mark.parametrize("name", sorted(set(FOUND) - set(FOUND_SAMPLE)))
def test_all_scenarios_that_were_recorded_beside_debezium_have_the_same_records(runner, name):
    assert runner.run(FOUND[name]) == []


def test_a_case_with_another_value_is_a_difference(runner):
    case = CASES["snapshot_one_row"]
    (record,) = case["snapshot"]
    wrong = {**record, "value": {**record["value"], "payload": {**record["value"]["payload"], "op": "c"}}}
    assert runner.run({**case, "snapshot": [wrong]}) == ['snapshot: record 0/value/payload/op: "c" expected, got "r"']


@pytest.mark.whole
@pytest.mark.parametrize("name", sorted(set(CASES) - set(SAMPLE)))
def test_all_recorded_cases_have_the_same_records_or_are_listed_as_different(runner, name):
    assert bool(runner.run(CASES[name])) is (name in DIFFERENT)
