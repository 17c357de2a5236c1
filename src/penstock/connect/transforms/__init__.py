"""Transformations of single records: all of Apache Kafka's, under its class names."""

from penstock.connect.transforms.conversions import Cast, TimestampConverter
from penstock.connect.transforms.fields import (
    ExtractField,
    Flatten,
    HoistField,
    InsertField,
    MaskField,
    ReplaceField,
    ValueToKey,
)
from penstock.connect.transforms.metadata import (
    DropHeaders,
    Filter,
    HeaderFrom,
    InsertHeader,
    RegexRouter,
    SetSchemaMetadata,
    TimestampRouter,
)
from penstock.connect.transforms.transformation import PACKAGE, SidedTransformation, Transformation, both_sides

__all__ = [
    "ABSTRACT",
    "TRANSFORMS",
    "Cast",
    "DropHeaders",
    "ExtractField",
    "Filter",
    "Flatten",
    "HeaderFrom",
    "HoistField",
    "InsertField",
    "InsertHeader",
    "MaskField",
    "RegexRouter",
    "ReplaceField",
    "SetSchemaMetadata",
    "SidedTransformation",
    "TimestampConverter",
    "TimestampRouter",
    "Transformation",
    "ValueToKey",
    "both_sides",
]

_SIDED: tuple[type[SidedTransformation], ...] = (
    Cast,
    ExtractField,
    Flatten,
    HeaderFrom,
    HoistField,
    InsertField,
    MaskField,
    ReplaceField,
    SetSchemaMetadata,
    TimestampConverter,
)
TRANSFORMS: tuple[type[Transformation], ...] = (
    *(sided for base in _SIDED for sided in both_sides(base)),
    DropHeaders,
    Filter,
    InsertHeader,
    RegexRouter,
    TimestampRouter,
    ValueToKey,
)
# Kafka's classes that stand for two: of keys and of values.
ABSTRACT: dict[str, tuple[str, str]] = {
    f"{PACKAGE}.{base.__name__}": (f"{PACKAGE}.{base.__name__}$Key", f"{PACKAGE}.{base.__name__}$Value")
    for base in _SIDED
}
