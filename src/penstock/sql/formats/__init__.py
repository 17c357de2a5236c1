"""The formats of topics: JSON, DELIMITED, KAFKA and NONE, and those with schemas in a registry."""

from penstock.sql.formats.format import Columns, FormatInfo, FormatProperties, RowSerde
from penstock.sql.formats.formats import check_columns, format_info, row_format
from penstock.sql.formats.inference import columns_of_model, inferred_columns

__all__ = [
    "Columns",
    "FormatInfo",
    "FormatProperties",
    "RowSerde",
    "check_columns",
    "columns_of_model",
    "format_info",
    "inferred_columns",
    "row_format",
]
