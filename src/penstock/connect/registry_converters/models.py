"""Confluent's converters: their settings that the converters here do not have."""

from __future__ import annotations

from penstock.connect.config import Model, Refused
from penstock.serde.schemas.schema_settings import IDENTITY

__all__ = ["AVRO_MODEL", "JSON_SCHEMA_MODEL", "PROTOBUF_MODEL"]

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
