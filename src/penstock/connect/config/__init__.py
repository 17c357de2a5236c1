"""Settings of plugins: definitions, parsing, validation; Kafka's ``ConfigDef`` with its messages."""

from penstock.connect.config.address_rules import DatabaseUrl, EachRegex, NamedValues, WebUrl
from penstock.connect.config.definition import NO_DEFAULT, ConfigDef, Recommender, Setting
from penstock.connect.config.kinds import (
    FindClass,
    Importance,
    Kind,
    Password,
    Width,
    class_name,
    parse_kind,
    setting_text,
)
from penstock.connect.config.validation import ConfigValue, validate
from penstock.connect.config.validators import (
    AllOf,
    AnyCase,
    Check,
    CleanText,
    JavaRegex,
    NonEmptyList,
    NonEmptyText,
    NonNull,
    OneOf,
    Range,
    UniqueList,
    Validator,
)

__all__ = [
    "AllOf",
    "AnyCase",
    "Check",
    "CleanText",
    "ConfigDef",
    "ConfigValue",
    "DatabaseUrl",
    "EachRegex",
    "FindClass",
    "Importance",
    "JavaRegex",
    "Kind",
    "NO_DEFAULT",
    "NamedValues",
    "NonEmptyList",
    "NonEmptyText",
    "NonNull",
    "OneOf",
    "Password",
    "Range",
    "Recommender",
    "Setting",
    "UniqueList",
    "Validator",
    "WebUrl",
    "Width",
    "class_name",
    "parse_kind",
    "setting_text",
    "validate",
]
