"""Transformations of single records: all of Apache Kafka's, under its class names."""

from penstock.connect.transforms.cast import Cast
from penstock.connect.transforms.fields import ExtractField, HoistField, ReplaceField, ValueToKey
from penstock.connect.transforms.flatten import Flatten
from penstock.connect.transforms.headers import DropHeaders, HeaderFrom, InsertHeader
from penstock.connect.transforms.insert_field import InsertField
from penstock.connect.transforms.mask_field import MaskField
from penstock.connect.transforms.routers import Filter, RegexRouter, TimestampRouter
from penstock.connect.transforms.schema_metadata import SetSchemaMetadata
from penstock.connect.transforms.timestamp_converter import TimestampConverter
from penstock.connect.transforms.transformation import PACKAGE, SidedTransformation, Transformation, both_sides

__all__ = [
    "ABSTRACT",
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
    "TRANSFORMS",
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
