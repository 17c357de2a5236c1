"""What converters with a schema registry share: settings, subjects, the frame before a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.connect.config import NO_DEFAULT, ConfigDef, Importance, Kind, Model, Range, Refused, Setting
from penstock.connect.converters import Converter, Role
from penstock.connect.converters.converter import CONVERTER_TYPE
from penstock.connect.data import (
    DATE,
    NO_VALUE,
    OPTIONAL_BOOLEAN,
    OPTIONAL_BYTES,
    OPTIONAL_FLOAT64,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    TIMESTAMP,
    DataError,
    Moment,
    Schema,
    SchemaAndValue,
    SettingError,
    Struct,
    array,
    decimal_schema,
    struct,
)
from penstock.errors import ConfigError, SerializationError
from penstock.serde.formats.schema_text import SchemaText
from penstock.serde.registry.compatibility import differences
from penstock.serde.registry.model import Reference
from penstock.serde.registry.model import StoredSchema as Document
from penstock.serde.schemas.client import Registered, RegistryClient, client_for
from penstock.serde.schemas.schema_settings import IDENTITY, SchemaSettings
from penstock.serde.schemas.value_bytes import frame, read_frame

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema as RegistrySchema

__all__ = [
    "AVRO_MODEL",
    "JSON_SCHEMA_MODEL",
    "PROTOBUF_MODEL",
    "REGISTRY_SETTINGS",
    "RegistryConverter",
    "flag_setting",
]

_PREFIX = ("prefix", "io.confluent.kafka.serializers.schema.id.PrefixSchemaIdSerializer")
_IDS = Refused("The id of a schema stands before the value.", unless=_PREFIX)
_ID = "The schema is the value's own: set use.latest.version to take the subject's newest."
_RULES = "Rules and tags of schemas are kept by the registry, and not carried out here."
_ALL = "all schemas that are in use are kept."

_REFUSED: dict[str, str | Refused] = {
    "use.schema.id": Refused(_ID, unless=("-1",)),
    "use.schema.guid": _ID,
    "use.latest.with.metadata": _ID,
    "key.schema.id.serializer": _IDS,
    "value.schema.id.serializer": _IDS,
    "rule.": _RULES,
    "rules.": _RULES,
    "validation.rules.": _RULES,
    "propagate.schema.tags": Refused(_RULES, unless=("false",)),
    "context.name.strategy": "Write the context into url: http://registry/contexts/.name",
    "schema.registry.url.randomize": Refused("The first URL is asked.", unless=("false",)),
    "request.header.": "Requests have the headers of basic.auth and bearer.auth alone.",
    "proxy.host": "Set schema.registry.proxy, such as http://proxy:3128.",
    "proxy.port": "Set schema.registry.proxy, such as http://proxy:3128.",
    "http.connect.timeout.ms": "Set schema.registry.timeout, in seconds.",
    "http.read.timeout.ms": "Set schema.registry.timeout, in seconds.",
    "generalized.sum.type.support": Refused("Unions and enums have the form of their own format.", unless=("false",)),
    "json.fail.invalid.schema": Refused("Values are written by their schema.", unless=("false",)),
    "flatten.singleton.unions": Refused("A union of one type is that type.", unless=("true",)),
}
_IDLE = {
    "schemas.cache.config": _ALL,
    "max.schemas.per.subject": _ALL,
    "latest.cache.size": _ALL,
    "id.compatibility.strict": "use.schema.id is not there.",
    "execution.environment": "no rules are carried out.",
    "key.schema.id.deserializer": "ids are read where they stand.",
    "value.schema.id.deserializer": "ids are read where they stand.",
}
_OWN = ("basic.auth.", "bearer.auth.", "ssl.", "schema.registry.", f"{IDENTITY}.")


def _model(format_name: str, **refused: str | Refused) -> Model:
    more = {name.replace("_", "."): each for name, each in refused.items()}
    return Model(f"Confluent's {format_name} converter", {**_REFUSED, **more}, _IDLE, _OWN)


AVRO_MODEL = _model(
    "Avro",
    enhanced_schema_support="Set enhanced.avro.schema.support.",
    allow_optional_map_keys=Refused("Maps with keys that may be null are lists of pairs.", unless=("false",)),
    discard_type_doc_default=Refused("The doc and the default of a field are those of its schema.", unless=("true",)),
    schema_reflection=Refused("Values are written by their schema.", unless=("false",)),
)
JSON_SCHEMA_MODEL = _model(
    "JSON Schema",
    ignore_modern_dialects=Refused("Schemas are written as draft 7.", unless=("false",)),
    preserve_additional_properties=Refused("Properties that a schema lacks are left out.", unless=("false",)),
)
PROTOBUF_MODEL = _model(
    "Protobuf",
    flatten_unions=Refused("Unions are structs with a field for each.", unless=("false",)),
    generate_struct_for_nulls=Refused("A message that is not there is null.", unless=("false",)),
    optional_for_proto2=Refused("Fields of proto2 are optional where they say so.", unless=("true",)),
    ignore_default_for_nullables=Refused("Null becomes the default where there is one.", unless=("false",)),
    skip_known_types=Refused("Known types are imported.", unless=("true",)),
)


SIMPLE: tuple[tuple[type, Schema], ...] = (
    (bool, OPTIONAL_BOOLEAN),
    (int, OPTIONAL_INT64),
    (float, OPTIONAL_FLOAT64),
    (str, OPTIONAL_STRING),
    (bytes, OPTIONAL_BYTES),
    (datetime, TIMESTAMP.as_optional()),
    (date, DATE.as_optional()),
    (Moment, TIMESTAMP.as_optional()),
)


def _setting(name: str, kind: Kind, default: Any, doc: str, **more: Any) -> Setting:
    return Setting(name=name, kind=kind, default=default, doc=doc, **{"importance": Importance.LOW, **more})


def flag_setting(name: str, default: str, doc: str) -> Setting:
    """Return a setting of a format that is true or false."""
    return _setting(name, Kind.BOOLEAN, default, doc)


REGISTRY_SETTINGS: tuple[Setting, ...] = (
    CONVERTER_TYPE,
    _setting("schema.registry.url", Kind.LIST, NO_DEFAULT, "URLs of the schema registry.", importance=Importance.HIGH),
    _setting(
        "auto.register.schemas", Kind.BOOLEAN, "true", "Register schemas that are new.", importance=Importance.MEDIUM
    ),
    _setting(
        "use.latest.version",
        Kind.BOOLEAN,
        "false",
        "Write with the newest schema of the subject, if auto.register.schemas is false.",
    ),
    _setting(
        "latest.compatibility.strict",
        Kind.BOOLEAN,
        "true",
        "With use.latest.version: the newest schema must be able to read values of the record's own schema.",
    ),
    _setting(
        "latest.cache.ttl.sec",
        Kind.LONG,
        "-1",
        "With use.latest.version: the seconds for which the newest schema is kept; -1 keeps it forever.",
    ),
    _setting("normalize.schemas", Kind.BOOLEAN, "false", "Compare schemas in their normal form."),
    _setting(
        IDENTITY,
        Kind.STRING,
        None,
        "The identity whose tokens the registry gets: azure, google, or module:function. Options follow its name.",
    ),
    _setting("schemas.cache.config", Kind.INT, "1000", "Number of schemas that are kept.", rule=Range(1)),
)


@dataclass(frozen=True, slots=True)
class _Target:
    """The schema and the plan by which values are written."""

    plan: Any
    registered: Registered
    subject: str


class RegistryConverter(Converter):
    """A converter whose bytes begin with the id of a schema in the registry.

    Attributes:
        kind: The registry's name of the format.
    """

    config: ClassVar[ConfigDef] = ConfigDef(REGISTRY_SETTINGS)
    kind: ClassVar[str]

    def configure(self, settings: Mapping[str, Any], role: Role = "value") -> None:
        self.options = self.parsed(settings, role)
        self.role: Role = role
        if role == "header":
            raise SettingError(
                f"{type(self).__name__} is not a converter of headers", hint="Use it for keys or values."
            )
        own_settings = {name: value for name, value in settings.items() if name not in _OF_CONVERTERS}
        own_settings["schema.registry.url"] = self.options["schema.registry.url"][0]
        schema_settings = {name: value for name, value in own_settings.items() if _is_known(name)}
        self._settings = SchemaSettings.of(schema_settings)
        self._targets: dict[tuple[Schema | None, str], _Target] = {}
        # as in Confluent's serializers, new schemas are registered first of all
        self._uses_latest = self.options["use.latest.version"] and not self.options["auto.register.schemas"]
        self._read: dict[int | str, tuple[Any, Schema | None]] = {}

    @property
    def client(self) -> RegistryClient:
        """The client of the registry."""
        return client_for(self._settings)

    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:
        if data is None:
            return NO_VALUE
        try:
            schema_id, start = read_frame(data, self.kind)
            plan_and_schema = self._read.get(schema_id)
            if plan_and_schema is None:
                registered = self.client.schema(schema_id)
                if registered.schema.kind != self.kind:
                    raise DataError(f"schema {schema_id} is of type {registered.schema.kind}, not {self.kind}")
                plan_and_schema = self._read[schema_id] = self.reading(registered)
            return self.decoded(data, start, plan_and_schema[0], plan_and_schema[1])
        except SerializationError as error:
            raise DataError(f"Failed to deserialize data for topic {topic} to {self.kind}: {error.message}") from error

    def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if schema is None and value is None:
            return None
        if schema is None:
            schema, value = self.guessed(value)
        key = (schema, topic)
        target = self._targets.get(key)
        if target is None or (self._uses_latest and self.client.has_newer(target.subject, target.registered)):
            target = self._targets[key] = self._target(topic, schema)
        return None if value is None else frame(target.registered.schema_id) + self.write(target.plan, schema, value)

    def decoded(self, data: bytes, start: int, plan: Any, schema: Schema | None) -> SchemaAndValue:
        """Return the value that begins at ``start``, with its schema."""
        return SchemaAndValue(schema, self.read(data, start, plan, schema))

    def reading(self, registered: Registered) -> tuple[Any, Schema | None]:
        """Return what is needed to read values of a schema, and Connect's schema of it."""
        raise NotImplementedError

    def read(self, data: bytes, start: int, plan: Any, schema: Schema | None) -> Any:
        """Return the value that begins at ``start``."""
        raise NotImplementedError

    def writing(self, schema: Schema) -> tuple[str, Any, str]:
        """Return the text of the schema to register, what is needed to write its values, and its record's name."""
        raise NotImplementedError

    def writing_as(self, registered: Registered, plan: Any) -> Any:  # noqa: ARG002 - what formats may need
        """Return the plan for values with a schema that is not their own, from the plan for values with that schema.

        Raises:
            ValueError: They cannot be.
        """
        return plan

    def comparable(self, schema: SchemaText) -> SchemaText:
        """Return a schema in the form that `writing` makes.

        Raises:
            ValueError: It is not valid.
        """
        return schema

    def write(self, plan: Any, schema: Schema, value: Any) -> bytes:
        """Return the bytes of a value, without the frame."""
        raise NotImplementedError

    def guessed(self, value: Any) -> tuple[Schema, Any]:
        """Return the schema of a value that has none, and the value in its form."""
        return with_schema(value)

    def _target(self, topic: str, schema: Schema) -> _Target:
        from confluent_kafka.schema_registry import Schema as RegistrySchema

        text, plan, name = self.writing(schema)
        subject = self._subject(topic, name)
        if self._uses_latest:
            latest = self.client.latest(subject)
            return _Target(self._latest_plan(latest, subject, text, plan), latest, subject)
        registry_schema: RegistrySchema = RegistrySchema(text, self.kind)
        automatic, normalize = self.options["auto.register.schemas"], self.options["normalize.schemas"]
        registered = self.client.register(subject, registry_schema, auto_register=automatic, normalize=normalize)
        return _Target(plan, registered, subject)

    def _latest_plan(self, latest: Registered, subject: str, text: str, plan: Any) -> Any:
        """Return what is needed to write values of a schema (its text and plan) with the newest one of the subject.

        Raises:
            DataError: They do not fit.
        """
        newest = latest.schema
        if newest.kind != self.kind:
            raise DataError(f"the newest schema of subject {subject} is of type {newest.kind}, not {self.kind}")
        try:
            if self.options["latest.compatibility.strict"]:
                self._check_newest(newest, subject, text)
            return self.writing_as(latest, plan)
        except ValueError as error:
            raise DataError(
                f"values of schema {text} cannot be written with the newest schema of subject {subject}, "
                f"{newest.text}: {error}"
            ) from error

    def _check_newest(self, newest: SchemaText, subject: str, text: str) -> None:
        reasons = _unreadable(self.comparable(newest), SchemaText(text, self.kind))
        if reasons:
            raise DataError(
                f"Incompatible schema {newest.text} of type {newest.kind}, the newest of subject {subject}, for schema "
                f"{text}: {'; '.join(reasons)}. Set latest.compatibility.strict=false to disable this check"
            )

    def _subject(self, topic: str, name: str) -> str:
        strategy = self._settings.strategy(self.role)
        if callable(strategy):
            return str(strategy(topic, self.role, name))
        return {"topic": f"{topic}-{self.role}", "record": name, "topic_record": f"{topic}-{name}"}[strategy]


_OF_CONVERTERS = {setting.name for setting in REGISTRY_SETTINGS} - {"latest.cache.ttl.sec", IDENTITY}


def _unreadable(reader: SchemaText, writer: SchemaText) -> list[str]:
    """List the reasons why one schema cannot read what another one wrote."""
    documents = {name: Document(text, reader.kind) for each in (writer, reader) for name, text in each.referred}

    def document(schema: SchemaText) -> Document:
        return Document(schema.text, schema.kind, tuple(Reference(name, name, 1) for name, _ in schema.referred))

    return differences(document(reader), document(writer), lambda reference: documents[reference.name])


def _is_known(name: str) -> bool:
    try:
        SchemaSettings.of({name: "true"})
    except ConfigError as error:
        return "there is no setting" not in error.message
    return True


def with_schema(value: Any) -> tuple[Schema, Any]:
    """Return the optional schema that fits a value, and the value with structs in place of dicts.

    Raises:
        DataError: A value in it has no type that Connect knows, or the elements of a list have none in common.

    Example:
        >>> schema, value = with_schema({"path": "/", "status": 200})
        >>> str(schema.field("status").schema), value["path"]
        ('Schema{INT64}', '/')
    """
    if isinstance(value, Struct):
        return value.schema, value
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        parts = {key: with_schema(each) for key, each in value.items() if each is not None}
        schema = struct({key: part[0] for key, part in parts.items()}, optional=True)
        return schema, Struct(schema, {key: part[1] for key, part in parts.items()})
    if isinstance(value, dict):
        raise DataError("a map whose keys are not all strings needs a schema")
    if isinstance(value, list):
        elements = [with_schema(each) for each in value if each is not None]
        kinds = {schema for schema, _ in elements}
        if len(kinds) > 1:
            raise DataError("a list whose elements differ in type needs a schema")
        return array(next(iter(kinds), OPTIONAL_STRING), optional=True), [part[1] for part in elements]
    if isinstance(value, Decimal):
        return decimal_schema(-int(value.as_tuple().exponent)).as_optional(), value
    for kind, schema in SIMPLE:
        if isinstance(value, kind):
            return schema, Moment.of(value) if isinstance(value, date) else value
    raise DataError(f"a value of type {type(value).__name__} needs a schema")
