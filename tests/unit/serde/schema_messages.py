"""A Protobuf file made at run time: no compiler is needed for tests."""

from __future__ import annotations

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

__all__ = ["order_file", "order_messages"]

_F = FieldDescriptorProto


def _field(message, name, number, kind, label="OPTIONAL", type_name=None, **more):
    field = message.field.add(name=name, number=number, type=getattr(_F, f"TYPE_{kind}"))
    field.label = getattr(_F, f"LABEL_{label}")
    if type_name:
        field.type_name = type_name
    for key, value in more.items():
        setattr(field, key, value)
    return field


def order_file(*, later: bool = False, name: str = "shop/order.proto") -> FileDescriptorProto:
    """package shop: Order with all kinds of fields, a message in it, and Other; ``later`` adds a field."""
    file = FileDescriptorProto(name=name, package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    file.dependency.extend(["google/protobuf/struct.proto", "google/protobuf/duration.proto"])
    kind = file.enum_type.add(name="Kind")
    for number, label in enumerate(("KIND_UNKNOWN", "GIFT", "SALE")):
        kind.value.add(name=label, number=number)
    order = file.message_type.add(name="Order")
    _field(order, "id", 1, "INT64")
    _field(order, "user", 2, "STRING")
    _field(order, "amount", 3, "DOUBLE")
    _field(order, "kind", 4, "ENUM", type_name=".shop.Kind")
    _field(order, "at", 5, "MESSAGE", type_name=".google.protobuf.Timestamp")
    _field(order, "lines", 6, "MESSAGE", "REPEATED", type_name=".shop.Order.Line")
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    _field(entry, "key", 1, "STRING")
    _field(entry, "value", 2, "INT32")
    _field(order, "counts", 7, "MESSAGE", "REPEATED", type_name=".shop.Order.CountsEntry")
    order.oneof_decl.add(name="way")
    _field(order, "post", 8, "STRING", oneof_index=0)
    _field(order, "pickup", 9, "BOOL", oneof_index=0)
    _field(order, "note", 10, "MESSAGE", type_name=".google.protobuf.StringValue")
    _field(order, "extra", 11, "MESSAGE", type_name=".google.protobuf.Struct")
    _field(order, "tags", 12, "BYTES", "REPEATED")
    _field(order, "took", 13, "MESSAGE", type_name=".google.protobuf.Duration")
    order.oneof_decl.add(name="_discount")
    _field(order, "discount", 14, "FLOAT", oneof_index=1, proto3_optional=True)
    line = order.nested_type.add(name="Line")
    _field(line, "sku", 1, "STRING")
    _field(line, "count", 2, "UINT32")
    if later:
        _field(order, "later", 99, "STRING")
    other = file.message_type.add(name="Other")
    _field(other, "parent", 1, "MESSAGE", type_name=".shop.Other")
    return file


def order_messages(**options):
    """The classes of Order, Order.Line and Other, in a pool of their own."""
    from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

    pool = descriptor_pool.DescriptorPool()
    for known in (timestamp_pb2, wrappers_pb2, struct_pb2, duration_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    pool.Add(order_file(**options))
    return [
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))
        for name in ("Order", "Order.Line", "Other")
    ]
