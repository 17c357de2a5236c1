"""The post conditions of a case: sources as they must be in the catalog, and names that no topic may have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.sql.catalog import Catalog, Source
from penstock.sql.evaluate import sql_type
from penstock.sql.formats import format_info
from penstock.sql.parse import parse_statement
from penstock.sql.parse.statement_nodes import CreateSource

__all__ = ["post_differences"]


def post_differences(post: Mapping[str, Any], catalog: Catalog, produced: set[str]) -> Iterator[str]:
    """The differences of a catalog and of the topics that were written from the post conditions."""
    for wanted in post.get("sources", ()):
        source = catalog.sources.get(wanted["name"]) or catalog.sources.get(wanted["name"].upper())
        if source is None:
            yield f"there is no source {wanted['name']}"
            continue
        yield from _source(wanted, source, catalog)
    topics = post.get("topics", {})
    pattern = topics.get("blacklist")
    if pattern is not None:
        hit = sorted(name for name in produced if re.fullmatch(pattern, name))
        if hit:
            yield f"topics {hit} were written"


def _source(wanted: Mapping[str, Any], source: Source, catalog: Catalog) -> Iterator[str]:
    name = source.name
    if wanted["type"].upper() != source.kind:
        yield f"{name} is a {source.kind}"
    if "isSource" in wanted and bool(wanted["isSource"]) != source.read_only:
        yield f"{name}: read only is {source.read_only}"
    if "schema" in wanted:
        yield from _schema(str(wanted["schema"]), source, catalog)
    key = wanted.get("keyFormat")
    if key is not None:
        if "format" in key and key["format"].upper() != source.key_format.name:
            yield f"{name} has the key format {source.key_format.name}, not {key['format']}"
        kind = source.window.kind if source.window else None
        if key.get("windowType") != kind:
            yield f"{name} has windows {kind}, not {key.get('windowType')}"
        size = key.get("windowSize")
        if size is not None and (source.window is None or source.window.size_ms != int(size)):
            yield f"{name} has windows {source.window}, not of {size} ms"
    value = wanted.get("valueFormat")
    value = value.get("format") if isinstance(value, Mapping) else value
    if value is not None and value.upper() != source.value_format.name:
        yield f"{name} has the value format {source.value_format.name}, not {value}"
    features = wanted.get("valueFeatures")
    if features is not None and set(features) != _features(source):
        yield f"{name} has the value features {_features(source)}, not {features}"


def _features(source: Source) -> set[str]:
    wrap = source.value_format.wrap
    if wrap is None or not format_info(source.value_format.name).wraps:
        return set() if wrap is None else {"WRAP_SINGLES" if wrap else "UNWRAP_SINGLES"}
    return {"WRAP_SINGLES" if wrap else "UNWRAP_SINGLES"}


def _schema(text: str, source: Source, catalog: Catalog) -> Iterator[str]:
    columns = re.sub(r"\bPRIMARY\s+KEY\b", "KEY", text)
    statement = parse_statement(f"CREATE STREAM X ({columns}) WITH (kafka_topic='x')") if columns.strip() else None
    wanted = statement.columns if isinstance(statement, CreateSource) else ()
    split: dict[bool, list[tuple[str, str]]] = {True: [], False: []}
    for column in wanted:
        split[column.role == "KEY"].append((column.name, str(sql_type(column.type, catalog.types))))
    for is_key, part in ((True, "key"), (False, "value")):
        found = [(c.name, str(c.type)) for c in source.columns if c.is_key == is_key]
        if found != split[is_key]:
            yield f"{source.name} has the {part} columns {found}, not {split[is_key]}"
