"""Connect's values and their schemas: the one model of types that Avro, Protobuf and JSON Schema are mapped to.

Values are plain Python's:

| Connect | Python |
| --- | --- |
| integers, floats | ``int``, ``float``; without schema, also the classes of ``numbers``, which know their Java type |
| BOOLEAN, STRING, BYTES | ``bool``, ``str``, ``bytes`` |
| ARRAY, MAP, STRUCT | ``list``, ``dict``, ``Struct`` |
| Decimal | ``decimal.Decimal``, whose exponent is the scale |
| Date, Time, Timestamp | ``Moment`` |
"""

from penstock.serde.data.logical import (
    DATE,
    TIME,
    TIMESTAMP,
    BigInteger,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Moment,
    decimal_schema,
)
from penstock.serde.data.schema import (
    BytesError,
    DataError,
    Field,
    Schema,
    SchemaBuilderError,
    Type,
    array,
    copy_basics,
    map_of,
    struct,
)
from penstock.serde.data.values import (
    Struct,
    fits,
    java_class,
    type_of,
    validate_value,
    with_default,
    with_struct_default,
    wrapped,
)

__all__ = [
    "BOOLEAN",
    "BYTES",
    "DATE",
    "FLOAT32",
    "FLOAT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "OPTIONAL_BOOLEAN",
    "OPTIONAL_BYTES",
    "OPTIONAL_FLOAT32",
    "OPTIONAL_FLOAT64",
    "OPTIONAL_INT8",
    "OPTIONAL_INT16",
    "OPTIONAL_INT32",
    "OPTIONAL_INT64",
    "OPTIONAL_STRING",
    "STRING",
    "TIME",
    "TIMESTAMP",
    "BigInteger",
    "BytesError",
    "DataError",
    "Field",
    "Float32",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Moment",
    "Schema",
    "SchemaBuilderError",
    "Struct",
    "Type",
    "array",
    "copy_basics",
    "decimal_schema",
    "fits",
    "java_class",
    "map_of",
    "struct",
    "type_of",
    "validate_value",
    "with_default",
    "with_struct_default",
    "wrapped",
]

INT8, INT16, INT32, INT64 = (Schema(kind) for kind in (Type.INT8, Type.INT16, Type.INT32, Type.INT64))
FLOAT32, FLOAT64, BOOLEAN = Schema(Type.FLOAT32), Schema(Type.FLOAT64), Schema(Type.BOOLEAN)
STRING, BYTES = Schema(Type.STRING), Schema(Type.BYTES)
OPTIONAL_INT8, OPTIONAL_INT16 = INT8.as_optional(), INT16.as_optional()
OPTIONAL_INT32, OPTIONAL_INT64 = INT32.as_optional(), INT64.as_optional()
OPTIONAL_FLOAT32, OPTIONAL_FLOAT64 = FLOAT32.as_optional(), FLOAT64.as_optional()
OPTIONAL_BOOLEAN, OPTIONAL_STRING, OPTIONAL_BYTES = BOOLEAN.as_optional(), STRING.as_optional(), BYTES.as_optional()
