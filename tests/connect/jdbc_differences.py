"""Recorded cases of the JDBC connectors that differ on purpose; docs/connect/differences.md has the reasons."""

__all__ = ["DIFFERENT"]

_EVERYWHERE = {
    "the table is looked at again before a field is refused": ["sink_{}_altered_while_running"],
    "a table made from a key alone would lack the columns of the first value": ["sink_{}_delete_first_creates"],
    "what no record could be written with is refused when it is configured": ["sink_{}_pk_kafka_two_names"],
    "an update without a key would change every row": ["sink_{}_update_no_pk"],
    "the error says that it is a view": ["sink_{}_view_refused"],
    "no row is lost": ["source_{}_incrementing_below_zero", "source_{}_timestamp_before_1970"],
    "names match in any case of letters": ["source_{}_incrementing_case_of_name"],
    "a query with WHERE is a subquery": ["source_{}_query_with_where"],
    "a table may come later": ["source_{}_table_missing"],
}
_POSTGRES = {
    "names match in any case of letters": ["sink_postgres_column_in_other_case"],
    "the tables of a batch that fails are gone with it": ["sink_postgres_tombstone_refused_in_batch"],
    "numbers of any size do not fit into one byte": [
        "source_postgres_numeric_mapping_best_fit", "source_postgres_numeric_mapping_best_fit_eager_double",
        "source_postgres_numeric_mapping_precision_only",
    ],
    "the scale is -2, not 2046": [
        "source_postgres_numeric_negative_scale_best_fit", "source_postgres_type_numeric_5_m2",
    ],
    "days of the Gregorian calendar": ["source_postgres_type_bc", "source_postgres_type_date"],
    "the bits, not their digits, and no failure": [
        "source_postgres_type_bit_12", "source_postgres_type_bit_5", "source_postgres_type_bit_8",
    ],
    "no failure": ["source_postgres_type_money"],
    "no value is lost": ["sink_postgres_type_map", "sink_postgres_type_struct"],
    "no column is lost": [
        f"source_postgres_type_{kind}"
        for kind in (
            "bit_varying", "cidr", "inet", "int4range", "int_array", "interval", "macaddr", "point", "text_array",
            "tsvector", "varbit_5",
        )
    ],
}  # fmt: skip
_UNMAPPED = {
    "no value is lost": [
        "sink_{}_type_array_int32",
        "sink_{}_type_array_string",
        "sink_{}_type_map",
        "sink_{}_type_struct",
    ]
}
_MARIADB = {"bytes of any length fit": ["sink_mariadb_type_bytes"]}
_SQLITE = {
    "what no record could be written with is refused when it is configured": [
        "sink_sqlite_config_upsert_without_pk", "source_sqlite_config_both_without_columns",
        "source_sqlite_config_delay_negative", "source_sqlite_config_incrementing_without_column",
        "source_sqlite_config_timestamp_without_column", "source_sqlite_config_types_unknown",
        "source_sqlite_config_whitelist_and_blacklist", "source_sqlite_timestamp_date_column",
    ],
    "columns have the types that the source reads back": [
        "sink_sqlite_defaults", "sink_sqlite_timestamp_fields_micros", "sink_sqlite_type_boolean",
        "sink_sqlite_type_date", "sink_sqlite_type_decimal_precision", "sink_sqlite_type_time",
        "sink_sqlite_type_timestamp",
    ],
    "an upsert changes the columns that it has": [
        "sink_sqlite_upsert_keeps_other_columns", "sink_sqlite_upsert_without_unique_key",
    ],
    "the schema does not depend on a row, and no digit is lost": [
        "source_sqlite_incrementing_decimal_column", "source_sqlite_incrementing_found",
        "source_sqlite_numeric_mapping_best_fit", "source_sqlite_numeric_mapping_best_fit_eager_double",
        "source_sqlite_numeric_mapping_none", "source_sqlite_numeric_mapping_precision_only",
        "source_sqlite_type_decimal", "source_sqlite_type_decimal_5_0", "source_sqlite_type_integer",
        "source_sqlite_type_none", "source_sqlite_type_real",
    ],
    "what the driver of Java does not read": [
        "source_sqlite_all_types_of_nulls", "source_sqlite_numeric_precision_mapping", "source_sqlite_type_blob",
        "source_sqlite_type_date", "source_sqlite_type_datetime", "source_sqlite_type_decimal_10_5",
        "source_sqlite_type_numeric", "source_sqlite_type_numeric_10_2",
    ],
    "the driver of Python does not say which columns of a query are never null": [
        f"source_sqlite_{name}"
        for name in (
            "query_both", "query_bulk", "query_empty_table_types", "query_incrementing", "query_masked",
            "query_subselect", "query_timestamp", "view",
        )
    ],
}  # fmt: skip


def _names(reasons, database=""):
    return {name.format(database): reason for reason, names in reasons.items() for name in names}


DIFFERENT = {
    **{
        name: reason for kind in ("sqlite", "postgres", "mariadb") for name, reason in _names(_EVERYWHERE, kind).items()
    },
    **{name: reason for kind in ("sqlite", "mariadb") for name, reason in _names(_UNMAPPED, kind).items()},
    **_names(_POSTGRES),
    **_names(_MARIADB),
    **_names(_SQLITE),
}
"""The reason of each, by the name of the case."""
