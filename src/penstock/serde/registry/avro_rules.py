"""Avro's rules of schema resolution: whether a reader's schema can read a writer's data."""

from __future__ import annotations

from typing import Any

from penstock.serde.formats.avro import ParsedSchema

__all__ = ["avro_differences"]

_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


def avro_differences(reader: ParsedSchema, writer: ParsedSchema) -> list[str]:
    """List the reasons why the reader cannot read the writer's data, each with its place in the reader's schema."""
    return _AvroComparison(reader, writer).compare(reader.schema, writer.schema, "")


class _AvroComparison:
    def __init__(self, reader: ParsedSchema, writer: ParsedSchema) -> None:
        self._reader = reader
        self._writer = writer
        self._pairs: set[tuple[str, str]] = set()  # records being compared, or found good: schemas may be recursive

    def compare(self, reader: Any, writer: Any, path: str) -> list[str]:
        kind, new = self._reader.type_of(reader)
        old_kind, old = self._writer.type_of(writer)
        if old_kind == "union":
            return [
                problem
                for number, branch in enumerate(old)
                for problem in self.compare(reader, branch, f"{path}/{number}" if kind == "union" else path)
            ]
        if kind == "union":
            if any(not self.compare(branch, writer, path) for branch in new):
                return []
            return [f"{path or '/'}: MISSING_UNION_BRANCH: reader union lacking writer type {old_kind.upper()}"]
        if kind != old_kind:
            if kind in _PROMOTIONS.get(old_kind, ()):
                return []
            return [f"{path or '/'}: TYPE_MISMATCH: reader type {kind.upper()} not compatible with {old_kind.upper()}"]
        if kind in {"record", "enum", "fixed"} and not _same_name(new, old):
            return [f"{path}/name: NAME_MISMATCH: expected {old['name']}"]
        if kind == "record":
            return self._records(new, old, path)
        if kind == "enum":
            missing = [symbol for symbol in old["symbols"] if symbol not in new["symbols"]]
            return [f"{path}/symbols: MISSING_ENUM_SYMBOLS: {missing}"] if missing and "default" not in new else []
        if kind == "fixed":
            return [] if new["size"] == old["size"] else [f"{path}/size: FIXED_SIZE_MISMATCH: expected {old['size']}"]
        if kind == "array":
            return self.compare(new["items"], old["items"], f"{path}/items")
        if kind == "map":
            return self.compare(new["values"], old["values"], f"{path}/values")
        return []

    def _records(self, new: Any, old: Any, path: str) -> list[str]:
        pair = (new["name"], old["name"])
        if pair in self._pairs:
            return []
        self._pairs.add(pair)
        problems: list[str] = []
        written = {field["name"]: field for field in old["fields"]}
        for number, field in enumerate(new["fields"]):
            here = f"{path}/fields/{number}"
            names = [field["name"], *field.get("aliases", ())]
            match = next((written[name] for name in names if name in written), None)
            if match is not None:
                problems += self.compare(field["type"], match["type"], f"{here}/type")
            elif "default" not in field:
                problems.append(f"{here}: READER_FIELD_MISSING_DEFAULT_VALUE: {field['name']}")
        if problems:
            self._pairs.discard(pair)
        return problems


def _same_name(reader: Any, writer: Any) -> bool:
    """Compare two names without their namespaces, and aliases in full."""
    name = writer["name"]
    short = name.rpartition(".")[2]
    return short == reader["name"].rpartition(".")[2] or any(
        alias in {name, short} for alias in reader.get("aliases", ())
    )
