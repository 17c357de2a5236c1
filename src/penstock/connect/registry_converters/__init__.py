"""Converters with a schema registry, under Confluent's class names."""

from penstock.connect.registry_converters.avro import AvroConverter
from penstock.connect.registry_converters.json_schema import JsonSchemaConverter
from penstock.connect.registry_converters.protobuf import ProtobufConverter
from penstock.connect.registry_converters.registry_converter import RegistryConverter

__all__ = ["REGISTRY_CONVERTERS", "AvroConverter", "JsonSchemaConverter", "ProtobufConverter", "RegistryConverter"]

REGISTRY_CONVERTERS: tuple[type[RegistryConverter], ...] = (AvroConverter, JsonSchemaConverter, ProtobufConverter)
