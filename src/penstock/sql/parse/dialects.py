"""What other dialects of SQL call things, and how they are written here: hints for errors."""

from __future__ import annotations

__all__ = ["OTHER_FUNCTIONS", "OTHER_STATEMENTS", "OTHER_TYPES", "OTHER_WORDS"]

_SEARCHED = "Write CASE WHEN x = 1 THEN 'one' ELSE 'other' END."
_LENGTH = "Write LEN(text)."
_NOW = "UNIX_TIMESTAMP() is the present time in milliseconds; ROWTIME is the time of the record."
_DATE_TEXT = "FORMAT_TIMESTAMP(time, 'yyyy-MM-dd') writes a time as text; see also FORMAT_DATE()."
_LIST = "COLLECT_LIST(x) is an array of the values; ARRAY_JOIN(COLLECT_LIST(x), ',') is one text."

OTHER_FUNCTIONS: dict[str, str] = {
    "ARRAY_AGG": _LIST,
    "CEILING": "Write CEIL(x).",
    "CHAR_LENGTH": _LENGTH,
    "CURRENT_TIMESTAMP": _NOW,
    "DATE_FORMAT": _DATE_TEXT,
    "DECODE": _SEARCHED,
    "FIRST_VALUE": "EARLIEST_BY_OFFSET(x) is the first value of a group.",
    "GETDATE": _NOW,
    "GROUP_CONCAT": _LIST,
    "IF": _SEARCHED,
    "IIF": _SEARCHED,
    "ISNULL": "Write IFNULL(x, y), or x IS NULL for a condition.",
    "LAST_VALUE": "LATEST_BY_OFFSET(x) is the last value of a group.",
    "LENGTH": _LENGTH,
    "LOWER": "Write LCASE(text).",
    "MOD": "Write x % y.",
    "NOW": _NOW,
    "NVL": "Write IFNULL(x, y).",
    "STRING_AGG": _LIST,
    "TO_CHAR": _DATE_TEXT,
    "TO_DATE": "Write PARSE_DATE(text, 'yyyy-MM-dd').",
    "TO_TIMESTAMP": "Write PARSE_TIMESTAMP(text, 'yyyy-MM-dd HH:mm:ss').",
    "UPPER": "Write UCASE(text).",
}

OTHER_TYPES: dict[str, str] = {
    "BINARY": "Write BYTES.",
    "BOOL": "Write BOOLEAN.",
    "CHAR": "Write STRING.",
    "DATETIME": "Write TIMESTAMP.",
    "FLOAT": "Write DOUBLE.",
    "JSON": "Write STRING, and read fields of it by EXTRACTJSONFIELD(text, '$.name').",
    "LONG": "Write BIGINT.",
    "NUMBER": "Write BIGINT, DOUBLE or DECIMAL(10, 2).",
    "REAL": "Write DOUBLE.",
    "ROW": "Write STRUCT<name STRING, ...>.",
    "SMALLINT": "Write INTEGER.",
    "TEXT": "Write STRING.",
    "TINYINT": "Write INTEGER.",
    "UUID": "Write STRING.",
    "VARBINARY": "Write BYTES.",
}

OTHER_STATEMENTS: dict[str, str] = {
    "DELETE": "A record with the key of a row and a null value, in the topic of a table, deletes the row.",
    "MERGE": "INSERT INTO a table replaces the row of its key.",
    "REPLACE": "Write CREATE OR REPLACE.",
    "TRUNCATE": "DROP ... DELETE TOPIC removes a stream or table with its topic.",
    "UPDATE": "INSERT INTO a table replaces the row of its key.",
    "UPSERT": "INSERT INTO a table replaces the row of its key.",
}

# Words and symbols that fit nowhere, or stand before the one that does not.
OTHER_WORDS: dict[str, str] = {
    "DISTINCT": "COUNT_DISTINCT counts values that differ; GROUP BY has each once.",
    "EXCEPT": "Name the columns that are wanted.",
    "FETCH": "Write LIMIT 5.",
    "ILIKE": "Write LCASE(text) LIKE 'a%'.",
    "OVER": "GROUP BY with WINDOW aggregates over time; there are no windows over rows.",
    "TOP": "Write LIMIT 5 at the end.",
    "UNION": "A second query can write into the same stream: INSERT INTO stream SELECT ...",
    "USING": "Write the condition: ON a.id = b.id.",
}
