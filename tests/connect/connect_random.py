"""Random cases of Kafka Connect's transformations, predicates and converters, without their outcomes.

A case has the form of the recorded ones (`connect_forms.py`): a plugin, its settings, and what goes in. `ConnectJudge.java`
adds what comes out.
"""

import base64
import json
import random
from copy import deepcopy

__all__ = ["FAMILIES", "random_case"]

DATA = "org.apache.kafka.connect.data."
SMT = "org.apache.kafka.connect.transforms."
DAY = 86_400_000  # Java's calendar goes round at the least of its days
FIELDS = ("a", "b", "c", "d", "a.b", "ä", "x y", "A", "a:b", "`q`", "b.c", "t", "_")
NAMES = ("N", "org.x.Y", "ä", "io.debezium.time.Date", "")
TEXTS = (
    "", " ", "a", "null", "true", "FALSE", "0", "-1", "12", "1.5", "1e3", "NaN", "-Infinity", "300", "70000", "3000000000",
    "9223372036854775808", "é", "日本", "😀", "x\u0000y", 'q"q', "a\\b", "line\nline", "2024-02-29", "1969-12-31T23:59:59.999Z",
    "12:34:56.789Z", "{}", "[1,2]", "\ud800", " 7 ", "+5", "0x10", "1_0", "٣", "1f", "1d", "\u2028", "\u00a0",
)  # fmt: skip
EDGES = {
    "int8": (-128, -1, 0, 1, 127),
    "int16": (-32768, -129, -1, 0, 1, 128, 32767),
    "int32": (-(1 << 31), -32769, -1, 0, 1, 86400, 32768, (1 << 31) - 1),
    "int64": (
        -(1 << 63) + 2 * DAY,
        -(1 << 31) - 1,
        -86400001,
        -1,
        0,
        1,
        1_700_000_000_123,
        253402300800000,
        1 << 53,
        (1 << 63) - 1,
    ),
    "float": (
        0.0,
        -0.0,
        1.5,
        -2.25,
        1e10,
        16777216.0,
        3.4028234663852886e38,
        1.1754943508222875e-35,
        0.10000000149011612,
    ),
    "double": (0.0, -0.0, 1.5, -2.25, 0.1, 1e21, 1e-7, 123456789.125, 1.7976931348623157e308, 5e-324, 9.3e18, 1e16),
}
SPECIAL = ("NaN", "Infinity", "-Infinity")
BYTES = (b"", b"\x00", b"hi", b"\xff\xfe", "é".encode(), b"\x00" * 9, b"null", b"\x01\x02\x03\x04\x05\x06\x07\x08")
DECIMALS = (
    "0",
    "5",
    "1",
    "12.30",
    "-0.01",
    "1E+3",
    "1E-7",
    "99999999999999999999.99",
    "-129",
    "3E+2147483",
    "0.000000000",
)
DAYS = (-719529, -40000, -1, 0, 1, 365, 11016, 19782, 2932896, 2932897)
DAY_TIMES = (0, 1, 999, 1000, 86399999, 45296789)
MOMENTS = (
    -62135596800001,
    -86400001,
    -86400000,
    -1,
    0,
    1,
    86399999,
    86400000,
    1_700_000_000_123,
    951782400000,
    253402300800000,
)
SIMPLE = ("int8", "int16", "int32", "int64", "float", "double", "boolean", "string", "bytes")
PRIMITIVES = SIMPLE[:-1]
PATTERNS = (
    "yyyy-MM-dd", "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "yyyyMMdd", "HH:mm:ss", "yyyy-MM-dd HH:mm:ss.SSSX", "EEE, d MMM yyyy HH:mm:ss Z",
    "yy.M.d h:mm a", "DDD/yyyy", "YYYY-'W'ww-u", "G yyyy", "MMMM", "k:K", "z", "SSS", "ss.SSSSSS", "''yyyy''", "F W w D", "XXX", "XX",
)  # fmt: skip


class Random(random.Random):
    """The choices of a case."""

    def chance(self, share):
        return self.random() < share


# Schemas


def schema(rng, depth=2, *, kind=None, plain=0.5):
    """A schema of any type, and whatever it may have."""
    if kind is None:
        if depth > 0 and rng.chance(0.35):
            kind = rng.choice(("array", "map", "struct"))
        elif rng.chance(0.25):
            kind = rng.choice(("Decimal", "Date", "Time", "Timestamp"))
        else:
            kind = rng.choice(SIMPLE)
    made = {"type": kind, "optional": rng.chance(0.5)}
    if kind == "Decimal":
        scale = rng.choice((0, 1, 2, 5, 20, -2))
        made = {**made, "type": "bytes", "name": DATA + kind, "version": 1, "parameters": {"scale": str(scale)}}
    elif kind in ("Date", "Time", "Timestamp"):
        made = {**made, "type": "int64" if kind == "Timestamp" else "int32", "name": DATA + kind, "version": 1}
    elif not rng.chance(plain):
        if rng.chance(0.4):
            made["name"] = rng.choice(NAMES)
        if rng.chance(0.4):
            made["version"] = rng.choice((0, 1, 7, -3, (1 << 31) - 1))
        if rng.chance(0.3):
            made["doc"] = rng.choice(("a text", "", "ä"))
        if rng.chance(0.3):
            made["parameters"] = rng.choice(({"k": "v"}, {"b": "1", "a": "2"}, {"scale": "x"}))
    if kind == "array":
        made["items"] = schema(rng, depth - 1, plain=plain)
    elif kind == "map":
        made["keys"] = schema(
            rng, 0, kind=rng.choice(("string", "string", "string", "int32", "int64", "boolean")), plain=0.9
        )
        made["keys"]["optional"] = rng.chance(0.2)
        made["keys"].pop("default", None)
        made["values"] = schema(rng, depth - 1, plain=plain)
    elif kind == "struct":
        names = rng.sample(FIELDS, rng.choice((0, 1, 1, 2, 2, 3, 4)))
        made["fields"] = [{**schema(rng, depth - 1, plain=plain), "field": name} for name in names]
    if rng.chance(0.25):
        default = value(rng, made, default=True)
        if default is not None:
            made["default"] = default
    return made


def struct_schema(rng, depth=2):
    made = schema(rng, depth, kind="struct")
    if not made["fields"] and rng.chance(0.8):
        return struct_schema(rng, depth)
    return made


# Values


def value(rng, form, *, default=False):
    """A value of a schema: in the form of cases, or of JsonConverter's defaults."""
    if form["optional"] and rng.chance(0.2) and not (default and "field" not in form):
        return None
    match form.get("name", "").removeprefix(DATA) if form.get("name", "").startswith(DATA) else form["type"]:
        case "Decimal":
            scale = int(form["parameters"]["scale"])
            unscaled = rng.choice((0, 1, -1, 127, 128, -129, 12345, 10**25, -(10**19)))
            if default:
                size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
                return base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()
            if rng.chance(0.05):
                return rng.choice(DECIMALS[:9])
            return decimal_text(unscaled, scale)
        case "Date":
            return rng.choice(DAYS)
        case "Time":
            return rng.choice(DAY_TIMES)
        case "Timestamp":
            return rng.choice(MOMENTS)
        case "int8" | "int16" | "int32" | "int64" as kind:
            return rng.choice(EDGES[kind])
        case "float" | "double" as kind:
            return rng.choice(SPECIAL) if not default and rng.chance(0.15) else rng.choice(EDGES[kind])
        case "boolean":
            return rng.chance(0.5)
        case "string":
            return text(rng)
        case "bytes":
            return base64.b64encode(rng.choice(BYTES)).decode()
        case "array":
            return [
                value(rng, {**form["items"], "field": "-"}, default=default) for _ in range(rng.choice((0, 1, 2, 3)))
            ]
        case "map":
            return map_value(rng, form, default)
    return {each["field"]: value(rng, each, default=default) for each in form["fields"]}


def map_value(rng, form, default):
    pairs = []
    for _ in range(rng.choice((0, 1, 2))):
        key = value(rng, {**form["keys"], "optional": False}, default=default)
        if all(key != other for other, _ in pairs):
            pairs.append([key, value(rng, {**form["values"], "field": "-"}, default=default)])
    return dict(pairs) if form["keys"]["type"] == "string" else pairs


def decimal_text(unscaled, scale):
    """BigDecimal's ``toString``."""
    from penstock.serde.data.logical import scaled_decimal

    return str(scaled_decimal(unscaled, scale))


def text(rng):
    if rng.chance(0.1):
        return "".join(rng.choice(("a", "1", ".", " ", "-", ":", "é", "😀")) for _ in range(rng.randrange(12)))
    return rng.choice(TEXTS[:29] + TEXTS[30:])  # half a character cannot be in every place


def loose(rng, depth=2):
    """A value without a schema."""
    kinds = ["null", "boolean", "int64", "double", "string"] * 2
    kinds += ["int8", "int16", "int32", "float", "bytes", "decimal", "bigint", "date", "uuid", "special"]
    if depth > 0:
        kinds += ["list", "object"] * 3 + ["map", "typed"]
    match rng.choice(kinds):
        case "null":
            return None
        case "boolean":
            return rng.chance(0.5)
        case "int64":
            return rng.choice(EDGES["int64"])
        case "double":
            number = rng.choice(EDGES["double"])
            return {"$float64": number} if number == int(number) else number
        case "string":
            return text(rng)
        case "int8" | "int16" | "int32" as kind:
            return {f"${kind}": rng.choice(EDGES[kind])}
        case "float":
            return {"$float32": rng.choice(EDGES["float"])}
        case "special":
            return {rng.choice(("$float32", "$float64")): rng.choice(SPECIAL)}
        case "bytes":
            return {"$bytes": base64.b64encode(rng.choice(BYTES)).decode()}
        case "decimal":
            return {"$decimal": rng.choice(DECIMALS)}
        case "bigint":
            return {"$bigint": rng.choice((1 << 64, -(1 << 70), 10**30))}
        case "date":
            return {"$date": rng.choice(MOMENTS)}
        case "uuid":
            return {"$uuid": "00000000-0000-4000-8000-00000000000a"}
        case "list":
            return [loose(rng, depth - 1) for _ in range(rng.randrange(4))]
        case "map":
            return {"$map": [[rng.choice(({"$int32": 1}, True, 5, "a")), loose(rng, depth - 1)]]}
        case "typed":
            return typed(rng)
    return loose_object(rng, depth)


def typed(rng):
    own = struct_schema(rng, 1)
    own["optional"] = False
    return {"$typed": {"schema": own, "value": value(rng, own)}}


def loose_object(rng, depth=2):
    names = rng.sample(FIELDS, rng.choice((0, 1, 2, 3)))
    return {name: loose(rng, depth - 1) for name in names}


def side(rng, depth=2):
    """A schema and a value of one side of a record, which seldom do not go together."""
    roll = rng.random()
    if roll < 0.25:
        return None, loose_object(rng, depth) if rng.chance(0.8) else loose(rng, depth)
    own = struct_schema(rng, depth) if roll < 0.85 else schema(rng, depth)
    if rng.chance(0.03):
        return own, mistyped(rng, own)
    return own, value(rng, own)


def mistyped(rng, own):
    """A value that is not of the schema, though of some type; not a struct for a struct, which no converter makes."""
    other = schema(rng, 1)
    while own["type"] == "struct" and other["type"] == "struct":
        other = schema(rng, 1)
    other["optional"] = False
    return {"$typed": {"schema": other, "value": value(rng, other)}}


def record(rng, **parts):
    key_schema, key = side(rng, 1) if rng.chance(0.3) else (None, None)
    value_schema, inner = side(rng)
    made = {
        "kind": rng.choice(("sink", "sink", "source")),
        "topic": rng.choice(("t", "topic", "a-b.c", "日本", "orders-raw", "t$1")),
        "partition": rng.choice((0, 1, 17)),
        "timestamp": rng.choice((None, *MOMENTS)),
        "key_schema": key_schema,
        "key": key,
        "value_schema": value_schema,
        "value": inner,
        "headers": [header(rng) for _ in range(rng.choice((0, 0, 1, 2, 3)))],
    }
    if made["kind"] == "sink":
        made["offset"] = rng.choice((0, 5, 1 << 40))
    elif rng.chance(0.4):
        made["partition"] = None
    return {**made, **parts}


def header(rng):
    own = schema(rng, 1) if rng.chance(0.6) else None
    return {
        "key": rng.choice(("h", "H", "a", "")),
        "schema": own,
        "value": loose(rng, 1) if own is None else value(rng, own),
    }


# Transformations


def sided(rng, name, config, records=None):
    """A case of a transformation of keys or values, over records whose side is worth looking at."""
    which = rng.choice(("Value", "Value", "Value", "Key"))
    steps = []
    for each in records or records_alike(rng):
        on_key = {"key": each["value"], "key_schema": each["value_schema"], "value": None, "value_schema": None}
        steps.append({"in": {**each, **on_key} if which == "Key" else each})
    return {"class": f"{SMT}{name}${which}", "config": with_oddities(rng, config), "steps": steps}


def records_alike(rng):
    """Records of which most have the same schema."""
    first = record(rng)
    found = [first]
    for _ in range(2):
        if rng.chance(0.7) and first["value_schema"] is not None:
            found.append(record(rng, value_schema=first["value_schema"], value=value(rng, first["value_schema"])))
        elif rng.chance(0.5):
            found.append(record(rng))
    return found


def with_oddities(rng, config):
    """Settings as users write them."""
    config = dict(config)
    for name in list(config):
        if rng.chance(0.01):
            config[name] = rng.choice((None, "", " ", "x"))
        elif rng.chance(0.02) and isinstance(config[name], str):
            config[name] = f" {config[name]} "
        elif rng.chance(0.01):
            del config[name]
    if rng.chance(0.3):
        config["replace.null.with.default"] = rng.choice(("true", "false", "false", "false", "FALSE", " true", "no"))
    return config


def names_of(rng, records):
    """Names of fields that some record has, and others."""
    names = []
    for each in records:
        form, inner = each["value_schema"], each["value"]
        if form is not None:
            names += [part["field"] for part in form.get("fields", ())]
        elif isinstance(inner, dict):
            names += [name for name in inner if not name.startswith("$")]
    if not names or rng.chance(0.1):
        names.append(rng.choice(FIELDS))
    return names


def some_names(rng, records):
    names = names_of(rng, records)
    return rng.sample(sorted(set(names)), min(len(set(names)), rng.choice((1, 1, 2, 3))))


def cast(rng):
    types = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string", "string")
    if rng.chance(0.4):
        found = []
        own = schema(rng, 1) if rng.chance(0.7) else None
        found += [
            record(rng, value_schema=own, value=loose(rng, 1) if own is None else value(rng, own)) for _ in range(3)
        ]
        return sided(rng, "Cast", {"spec": rng.choice((*types, "STRING", " Int8 "))}, found)
    found = records_alike(rng)
    parts = [f"{name}:{rng.choice(types)}" for name in some_names(rng, found)]
    if rng.chance(0.05):
        parts.append(rng.choice(("x", "a:bytes", "a:", ":string", "a:b:c", "a:array", "", "int8")))
    return sided(rng, "Cast", {"spec": ",".join(parts)}, found)


def path_in(rng, form, inner):
    """The path to a nested field, in the second syntax."""
    steps = []
    while form is None or form["type"] == "struct":
        if form is not None:
            if not form["fields"]:
                break
            chosen = rng.choice(form["fields"])
            name, form = chosen["field"], {k: v for k, v in chosen.items() if k != "field"}
            inner = inner.get(name) if isinstance(inner, dict) else None
        else:
            if not isinstance(inner, dict) or not inner:
                break
            name = rng.choice(sorted(inner))
            inner = inner[name]
        steps.append(f"`{name}`" if "." in name or rng.chance(0.1) else name)
        if rng.chance(0.3):
            break
    if rng.chance(0.1):
        steps.append(rng.choice(FIELDS))
    return ".".join(steps) or "a"


def extract_field(rng):
    found = records_alike(rng)
    config = {"field": rng.choice(names_of(rng, found))}
    if rng.chance(0.6):
        config = {"field": path_in(rng, found[0]["value_schema"], found[0]["value"]), "field.syntax.version": "V2"}
        if rng.chance(0.1):
            config["field.syntax.version"] = rng.choice(("v2", "V1", "V3"))
        if rng.chance(0.1):
            config["field"] = rng.choice(("`a", "a..b", ".a", "a.", "``", "`a`b", "`a\\`.b`", "a`b", "`a`.", "."))
    return sided(rng, "ExtractField", config, found)


def flatten(rng):
    found = records_alike(rng)
    config = {"delimiter": rng.choice(("_", "-", "/", "\\", "__"))}
    if rng.chance(0.1) and all(each["value_schema"] for each in found):
        config = {}  # without schemas the order of a map decides between a.b and b in a
    return sided(rng, "Flatten", config, found)


def header_from(rng):
    found = records_alike(rng)
    names = some_names(rng, found)
    titles = [rng.choice(("h", "H", "x")) for _ in names]
    if rng.chance(0.03):
        titles.append("more")
    config = {"fields": ",".join(names), "headers": ",".join(titles), "operation": rng.choice(("move", "copy"))}
    if rng.chance(0.02):
        config["operation"] = "MOVE"
    return sided(rng, "HeaderFrom", config, found)


def hoist_field(rng):
    return sided(rng, "HoistField", {"field": rng.choice((*FIELDS, ""))})


def insert_field(rng):
    config = {}
    for part in rng.sample(("topic", "partition", "offset", "timestamp", "static"), rng.choice((1, 1, 2, 3))):
        config[f"{part}.field"] = rng.choice(("m", "n", "o", "p", "a", "ä")) + rng.choice(("", "", "!", "?"))
    if "static.field" in config or rng.chance(0.1):
        config["static.value"] = rng.choice(("v", "", "12", "ä"))
        if rng.chance(0.03):
            del config["static.value"]
    return sided(rng, "InsertField", config)


def mask_field(rng):
    found = records_alike(rng)
    config = {"fields": ",".join(some_names(rng, found))}
    if rng.chance(0.6):
        config["replacement"] = rng.choice(
            (
                "0",
                "-1",
                "99",
                "300",
                "1.5",
                "-2.5e3",
                "x",
                "",
                " ",
                "1e400",
                "99999999999",
                "+3",
                "1d",
                "0x1",
                "1E2",
                "NaN",
                "٣",
                ".5",
                "5.",
            )
        )
    return sided(rng, "MaskField", config, found)


def replace_field(rng):
    found = records_alike(rng)
    config = {}
    if rng.chance(0.5):
        config["exclude"] = ",".join(some_names(rng, found))
    if rng.chance(0.4):
        config["include"] = ",".join(some_names(rng, found))
    if rng.chance(0.6):
        pairs = [f"{name}:{rng.choice((*FIELDS, 'z', 'y'))}" for name in some_names(rng, found)]
        if rng.chance(0.05):
            pairs.append(rng.choice(("x", "a:", ":b", "a:b:c", "a::")))
        config["renames"] = ",".join(pairs)
    return sided(rng, "ReplaceField", config, found)


def set_schema_metadata(rng):
    config = {}
    if rng.chance(0.7):
        config["schema.name"] = rng.choice(("N2", "", "org.x.Z", " "))
    if rng.chance(0.6):
        config["schema.version"] = rng.choice(("1", "42", "-1", "x", "2147483648", " 7", "1.5", "+3"))
    return sided(rng, "SetSchemaMetadata", config)


def value_to_key(rng):
    found = records_alike(rng)
    config = with_oddities(rng, {"fields": ",".join(some_names(rng, found))})
    return {"class": f"{SMT}ValueToKey", "config": config, "steps": [{"in": each} for each in found]}


def timestamp_texts(rng, pattern):
    """A text that the pattern may have written."""
    from penstock.base.java_text.dates import SimpleDateFormat

    made = SimpleDateFormat(pattern).format(rng.choice(MOMENTS))
    if rng.chance(0.2) and made:
        at = rng.randrange(len(made))
        made = made[:at] + rng.choice(("", "x", "9", " ", "-")) + made[at + 1 :]
    return made


def timestamp_converter(rng):
    pattern = rng.choice(PATTERNS[:6]) if rng.chance(0.7) else rng.choice(PATTERNS)
    config = {"target.type": rng.choice(("string", "unix", "Date", "Time", "Timestamp"))}
    if config["target.type"] == "string" or rng.chance(0.7):
        config["format"] = pattern
    if rng.chance(0.02):
        config["format"] = rng.choice(("b", "'", "yyyy-MM-ddT", "", " "))
    if rng.chance(0.4):
        config["unix.precision"] = rng.choice(("seconds", "milliseconds", "microseconds", "nanoseconds", "minutes"))
    own = timestamp_schema(rng, pattern)
    found = []
    if rng.chance(0.35):
        for _ in range(3):
            if rng.chance(0.3):
                found.append(record(rng, value_schema=None, value=loose_time(rng, pattern)))
            else:
                found.append(record(rng, value_schema=own, value=time_value(rng, own, pattern)))
        return sided(rng, "TimestampConverter", config, found)
    config["field"] = "t"
    whole = struct_schema(rng, 1)
    whole["fields"] = [each for each in whole["fields"] if each["field"] != "t"]
    if not rng.chance(0.03):
        whole["fields"].insert(rng.randrange(len(whole["fields"]) + 1), {**own, "field": "t"})
    whole.pop("default", None)

    def filled(*, default=False):
        made = {part["field"]: value(rng, part, default=default) for part in whole["fields"]}
        if any(part["field"] == "t" for part in whole["fields"]):
            made["t"] = time_value(rng, {**own, "field": "t"}, pattern)
        return made

    if rng.chance(0.4):
        whole["default"] = filled(default=True)
    for _ in range(3):
        if rng.chance(0.2):
            inner = {**loose_object(rng, 1), "t": loose_time(rng, pattern)}
            found.append(record(rng, value_schema=None, value=inner))
        else:
            empty = whole["optional"] and rng.chance(0.15)
            found.append(record(rng, value_schema=whole, value=None if empty else filled()))
    return sided(rng, "TimestampConverter", config, found)


def timestamp_schema(rng, pattern):
    kind = rng.choice(
        ("string", "string", "int64", "int64", "Date", "Time", "Timestamp", "Timestamp", "int32", "double")
    )
    made = schema(rng, 0, kind=kind, plain=0.8)
    made.pop("default", None)
    if rng.chance(0.3):
        default = time_value(rng, {**made, "optional": False}, pattern)
        made["default"] = default
    return made


def time_value(rng, form, pattern):
    if form["optional"] and rng.chance(0.2):
        return None
    if form["type"] == "string":
        return timestamp_texts(rng, pattern)
    if form["type"] == "int64" and "name" not in form:
        return rng.choice((*MOMENTS, *EDGES["int64"][1:]))
    return value(rng, {**form, "optional": False}, default=form["type"] in ("float", "double"))


def loose_time(rng, pattern):
    if rng.chance(0.1):
        return loose(rng, 0)
    return rng.choice(
        (None, timestamp_texts(rng, pattern), rng.choice(EDGES["int64"][1:]), {"$date": rng.choice(MOMENTS)})
    )


def drop_headers(rng):
    names = ",".join(rng.sample(("h", "H", "a", "zz"), rng.choice((1, 2))))
    return {"class": f"{SMT}DropHeaders", "config": with_oddities(rng, {"headers": names}), "steps": steps_of(rng)}


def insert_header(rng):
    config = {"header": rng.choice(("h", "x")), "value.literal": header_like(rng)}
    return {"class": f"{SMT}InsertHeader", "config": with_oddities(rng, config), "steps": steps_of(rng)[:1]}


def filter_all(rng):
    return {"class": f"{SMT}Filter", "config": {}, "steps": steps_of(rng)}


REGEXES = (
    "(.*)-raw",
    "t",
    "(.)(.*)",
    "(?<w>\\w+)",
    "[^.]*",
    "a-b\\.c",
    "(日)(本)",
    ".*",
    "(?i)T(OPIC)?",
    "t\\$1",
    "(a)|(t)",
    "",
)
REPLACEMENTS = ("$1", "x", "${w}", "$0-$0", "\\$1", "$2$1", "$9", "$", "", "a$1b", "\\\\", "${nope}", "$12", "日")


def regex_router(rng):
    config = {"regex": rng.choice((*REGEXES, "(", "*")) if rng.chance(0.1) else rng.choice(REGEXES)}
    config["replacement"] = rng.choice(REPLACEMENTS)
    return {"class": f"{SMT}RegexRouter", "config": with_oddities(rng, config), "steps": steps_of(rng)}


def timestamp_router(rng):
    config = {}
    if rng.chance(0.7):
        config["topic.format"] = rng.choice(
            ("${topic}-${timestamp}", "${timestamp}", "x", "${topic}", "${topic}${topic}", "$topic", "")
        )
    if rng.chance(0.7):
        config["timestamp.format"] = rng.choice((*PATTERNS, "b", "'", ""))
    return {"class": f"{SMT}TimestampRouter", "config": with_oddities(rng, config), "steps": steps_of(rng)}


def predicate(rng):
    name, config = rng.choice(
        (
            ("HasHeaderKey", {"name": rng.choice(("h", "H", "a", "zz"))}),
            ("RecordIsTombstone", {}),
            ("TopicNameMatches", {"pattern": rng.choice(REGEXES)}),
        )
    )
    steps = steps_of(rng)
    for step in steps:
        if rng.chance(0.3):
            step["in"]["value"] = None
    return {"class": f"{SMT}predicates.{name}", "config": with_oddities(rng, config), "steps": steps}


def steps_of(rng):
    return [{"in": record(rng)} for _ in range(3)]


def chain(rng):
    """A chain of transformations, some with predicates."""
    config, names = {}, []
    records = [each for each in records_alike(rng) if each["kind"] == "sink"] or [
        record(rng, kind="sink", partition=0, offset=3)
    ]
    for number in range(rng.choice((1, 2, 3))):
        made = rng.choice(CHAINED)(rng)
        name = f"s{number}"
        names.append(name)
        config[f"transforms.{name}.type"] = made["class"]
        config |= {f"transforms.{name}.{key}": each for key, each in made["config"].items() if each is not None}
        if rng.chance(0.5):
            config[f"transforms.{name}.predicate"] = "p"
            if rng.chance(0.5):
                config[f"transforms.{name}.negate"] = rng.choice(
                    ("true", "false", "TRUE", "x") if rng.chance(0.1) else ("true", "false")
                )
    config["transforms"] = ",".join(names)
    if rng.chance(0.95):
        made = predicate(rng)
        config |= {"predicates": "p", "predicates.p.type": made["class"]}
        config |= {f"predicates.p.{key}": each for key, each in made["config"].items() if each is not None}
    if rng.chance(0.05):
        config.pop(rng.choice(sorted(config)))
    return {"chain": True, "config": config, "steps": [{"in": each} for each in records]}


CHAINED = (cast, drop_headers, extract_field, filter_all, flatten, header_from, hoist_field, insert_field, insert_header,
           mask_field, regex_router, replace_field, set_schema_metadata, timestamp_router, value_to_key)  # fmt: skip


# Converters


def data_form(data):
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def header_like(rng, depth=2):
    """A text as headers have them: nearly a number, a date, a list."""
    roll = rng.random()
    if roll < 0.3:
        return text(rng)
    if roll < 0.4:
        return timestamp_texts(rng, rng.choice(("yyyy-MM-dd", "HH:mm:ss.SSS'Z'", "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")))
    if roll < 0.5:
        number = rng.choice(
            (
                *EDGES["int64"],
                *EDGES["double"],
                1.5,
                "1e5",
                "1E-400",
                "-.5",
                "5.",
                "00012",
                "1e400",
                "1.0",
                "340282350000000000000000000000000000000.5",
            )
        )
        return rng.choice(("", "", "-", "+", " ")) + str(number)
    parts = [
        rng.choice((header_like, json_like))(rng, depth - 1) if depth else text(rng) for _ in range(rng.randrange(4))
    ]
    if roll < 0.7:
        made = "[" + rng.choice((",", ", ", " ,")).join(parts) + "]"
    elif roll < 0.9:
        keys = [rng.choice(('"k"', "1", '"a b"', "k", "null", '"2024-02-29"', '"x\\"y"')) for _ in parts]
        made = "{" + ",".join(f"{k}{rng.choice((':', ' : '))}{v}" for k, v in zip(keys, parts, strict=True)) + "}"
    else:
        made = '"' + "".join(parts) + '"'
    if rng.chance(0.2) and made:
        at = rng.randrange(len(made))
        made = made[:at] + rng.choice(("", ",", '"', "\\", "]", "}", " ", ":")) + made[at + rng.randrange(2) :]
    return made


def json_like(rng, _depth=0):
    return rng.choice(
        (
            '"a"',
            "1",
            "300",
            "1.5",
            "true",
            "null",
            '""',
            '"2024-02-29"',
            '"12:34:56.789Z"',
            "-7",
            "1e3",
            "70000",
            "[]",
            "{}",
            '"x:y"',
            '"a\\\\b"',
        )
    )


def simple_header(rng):
    if rng.chance(0.6):
        steps = [{"to_connect": data_form(header_like(rng).encode("utf-8", "replace"))} for _ in range(4)]
    else:
        steps = write_steps(rng)
    return converter(rng, "org.apache.kafka.connect.storage.SimpleHeaderConverter", {}, steps, role="header")


def converter(rng, name, config, steps, role=None):
    return {"class": name, "config": config, "role": role or rng.choice(("key", "value", "header")), "steps": steps}


def write_steps(rng, own=None):
    steps = []
    for _ in range(3):
        form = (own or schema(rng)) if rng.chance(0.7) else None
        if form is not None and rng.chance(0.15):
            inner = mistyped(rng, form)
        else:
            inner = loose(rng) if form is None else value(rng, form)
        steps.append({"from_connect": {"schema": form, "value": inner}})
    return steps


ENCODINGS = (
    "UTF-8",
    "utf8",
    "ISO-8859-1",
    "US-ASCII",
    "UTF-16",
    "UTF-16LE",
    "UTF-16BE",
    "windows-1252",
    "UTF-32",
    "latin1",
    "cp437",
)
EASTERN = ("Shift_JIS", "EUC-KR", "GBK")  # what Python makes of their wrong bytes differs


def string(rng):
    config = {
        "converter.encoding": rng.choice((*ENCODINGS, "x-nope", "", " UTF-8 "))
        if rng.chance(0.5)
        else rng.choice(ENCODINGS)
    }
    config = config if rng.chance(0.5) else {}
    steps = write_steps(rng)
    if not config and rng.chance(0.1):
        config = {"converter.encoding": rng.choice(EASTERN)}
    elif rng.chance(0.5):
        steps = [{"to_connect": data_form(random_bytes(rng))} for _ in range(3)] + [{"to_connect": None}]
    return converter(rng, "org.apache.kafka.connect.storage.StringConverter", config, steps)


def random_bytes(rng):
    if rng.chance(0.4):
        return rng.choice(TEXTS[:29]).encode(rng.choice(("utf-8", "utf-16-le", "utf-16-be")), "replace")
    if rng.chance(0.3):
        return bytes(
            rng.choice((0xED, 0xA0, 0x80, 0xC3, 0xA9, 0xF0, 0x9F, 0x41, 0xFE, 0xFF)) for _ in range(rng.randrange(6))
        )
    return rng.randbytes(rng.randrange(10))


def number(rng):
    name, kind, size = rng.choice(
        (
            ("Short", "int16", 2),
            ("Integer", "int32", 4),
            ("Long", "int64", 8),
            ("Float", "float", 4),
            ("Double", "double", 8),
            ("Boolean", "boolean", 1),
        )
    )
    if rng.chance(0.5):
        steps = [
            {"to_connect": data_form(rng.randbytes(size if rng.chance(0.7) else rng.randrange(10)))} for _ in range(3)
        ]
        if name == "Boolean":
            steps += [{"to_connect": data_form(bytes([rng.randrange(3)]))}]
    else:
        own = schema(rng, 0, kind=kind)
        steps = write_steps(rng, own if rng.chance(0.8) else None)
    return converter(rng, f"org.apache.kafka.connect.converters.{name}Converter", {}, steps)


def byte_array(rng):
    steps = write_steps(rng, schema(rng, 0, kind="bytes"))
    steps += [{"to_connect": data_form(random_bytes(rng))}, {"to_connect": None}]
    return converter(rng, "org.apache.kafka.connect.converters.ByteArrayConverter", {}, steps)


def json_converter(rng):
    config = {}
    if rng.chance(0.4):
        config["schemas.enable"] = rng.choice(("true", "false", "false"))
    if rng.chance(0.3):
        config["decimal.format"] = rng.choice(("NUMERIC", "BASE64", "numeric", "x"))
    if rng.chance(0.3):
        config["replace.null.with.default"] = rng.choice(("true", "false"))
    if rng.chance(0.2):
        config["schemas.cache.size"] = rng.choice(("0", "1", "1000"))
    if rng.chance(0.1):
        config["schema.content"] = rng.choice(
            ("", " ", "{", json.dumps(json_schema(rng, schema(rng)), ensure_ascii=False))
        )
    if rng.chance(0.35):
        steps = write_steps(rng)
    else:
        enabled = config.get("schemas.enable") != "false"
        if rng.chance(0.4):
            read = bytes_like if enabled and rng.chance(0.4) else json_tokens
            steps = [{"to_connect": data_form(read(rng))} for _ in range(6)]
        else:
            steps = [{"to_connect": data_form(json_document(rng, enabled))} for _ in range(4)]
    return converter(rng, "org.apache.kafka.connect.json.JsonConverter", config, steps)


def json_schema(rng, form):
    """A schema as the converter writes it: without what it cannot write, a struct's default."""
    made = {key: each for key, each in form.items() if not (key == "default" and form["type"] == "struct")}
    for part in ("items", "keys", "values"):
        if isinstance(made.get(part), dict):
            made[part] = json_schema(rng, made[part])
    if "fields" in made:
        made["fields"] = [json_schema(rng, each) for each in made["fields"]]
    return made


def json_document(rng, enabled):
    form = schema(rng)
    payload = value(rng, form, default=True)
    document = {"schema": json_schema(rng, form), "payload": payload}
    if not enabled or rng.chance(0.03):
        document = payload
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
        document = mutated(rng, document)
    made = json.dumps(document, ensure_ascii=rng.chance(0.5), indent=rng.choice((None, None, 1)))
    encoding = (
        rng.choice(("utf-16-le", "utf-16-be", "utf-16", "utf-32-be", "utf-32", "utf-8-sig"))
        if rng.chance(0.05)
        else "utf-8"
    )
    data = made.encode(encoding, "replace")
    if rng.chance(0.15):
        at = rng.randrange(len(data) + 1)
        data = data[:at] + rng.choice(ODD).encode("utf-8", "surrogateescape") + data[at + rng.randrange(2) :]
    return data


ODD = (
    "", ",", '"', "}", "]", "{", "[", ":", "\x00", "\udcff", "\udcc3", " ", "\t", "\x0b", "\u00a0", "\u2028", "1", "0", "-", "+", "e", "E5", ".", "x",
    "\\u0041", "\\x", "\\/", "\\ud800", "\\ud83d\\ude00", "\\u12", "//", "/**/", "#", "'", "NaN", "Infinity", "\ufeff", "\udced\udca0\udc80", "null", "\x7f",
)  # fmt: skip
TOKENS = (
    *(
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        '"a"',
        '"b"',
        '"schema"',
        '"payload"',
        '"type"',
        '"string"',
        '"bytes"',
        '"int8"',
        "null",
        "true",
        "false",
    ),
    *(
        "0",
        "1",
        "-1",
        "01",
        "-01",
        "00",
        "-0",
        "0.5",
        "00.5",
        "1.",
        ".5",
        "1e3",
        "1e",
        "1e+",
        "+1",
        "1E400",
        "-1E-400",
        "0x1",
        "1_0",
        "12345678901234567890",
    ),
    *(
        "Infinity",
        "-Infinity",
        "NaN",
        "-NaN",
        "tru",
        "True",
        "nul",
        '"',
        '"\\"',
        '"\\u0000"',
        '"\x1f"',
        '"\\ud800"',
        '"\\x41"',
        '"\\u00e9"',
        '"é"',
        "'a'",
    ),
    *(
        " ",
        "\n",
        "\r",
        "\t",
        "\x0b",
        "\x0c",
        "\u00a0",
        "\ufeff",
        "\x00",
        "//c\n",
        "/*c*/",
        "#",
        "\udcff",
        "\udcc3\udca9",
        "\udced\udca0\udc80",
        "1e05",
        "1E-0",
        "1e2147483648",
    ),
)


def json_tokens(rng):
    """Parts of JSON in any order, now and then a document."""
    parts = [rng.choice(TOKENS) for _ in range(rng.randrange(1, 7))]
    made = "".join(parts)
    if rng.chance(0.5):
        made = "[" + ",".join(parts) + "]"
    elif rng.chance(0.3):
        made = '{"a":' + rng.choice(("", " ")).join(parts) + "}"
    return made.encode("utf-8", "surrogateescape")


def bytes_like(rng):
    """A text that is nearly base64, as a field of bytes or of a Decimal has it."""
    data = base64.b64encode(rng.randbytes(rng.randrange(7))).decode()
    if rng.chance(0.7):
        at = rng.randrange(len(data) + 1)
        data = (
            data[:at]
            + rng.choice(
                ("=", "==", "-", "_", " ", "\n", "\t", "\r\n", "?", "A", "é", "\u00a0", "\x00", "+", "/", "====")
            )
            + data[at + rng.randrange(2) :]
        )
    form = schema(rng, 0, kind=rng.choice(("bytes", "bytes", "Decimal")))
    form.pop("default", None)
    if rng.chance(0.2):
        form["default"] = data
    if rng.chance(0.3):
        form = {"type": "array", "optional": False, "items": form}
        return json.dumps({"schema": form, "payload": [data, "aGk="]}).encode()
    return json.dumps({"schema": form, "payload": None if "default" in form else data}).encode()


JUNK = (
    None,
    True,
    0,
    -1,
    1.5,
    1e30,
    2**31,
    2**63,
    2**64,
    "",
    "x",
    "aGk=",
    "aGk",
    "MTIz",
    "null",
    "NaN",
    [],
    {},
    [1, "a"],
    {"a": 1},
    [[1, 2]],
    [[1]],
    "1",
    10**40,
    -0.0,
)


def mutated(rng, document):
    """A document in which one part is another."""
    document = deepcopy(document)
    places = []

    def walk(node):
        for at in list(node) if isinstance(node, dict) else range(len(node)):
            places.append((node, at))
            if isinstance(node[at], dict | list):
                walk(node[at])

    if not isinstance(document, dict | list) or not document:
        return rng.choice(JUNK)
    walk(document)
    node, at = rng.choice(places)
    roll = rng.random()
    if roll < 0.65:
        node[at] = rng.choice(JUNK)
    elif roll < 0.85:
        del node[at]
    elif isinstance(node, dict):
        node[rng.choice(("default", "optional", "name", "version", "doc", "parameters", "type", "extra"))] = rng.choice(
            (*JUNK, "string", "int32", DATA + "Date", DATA + "Decimal", {"scale": "2"}, {"scale": 2})
        )
    else:
        node.append(rng.choice(JUNK))
    return document


FAMILIES = {
    "bytearray": byte_array, "cast": cast, "chain": chain, "dropheaders": drop_headers, "extractfield": extract_field, "filter": filter_all,
    "flatten": flatten, "headerfrom": header_from, "hoistfield": hoist_field, "insertfield": insert_field, "insertheader": insert_header,
    "json": json_converter, "maskfield": mask_field, "number": number, "predicate": predicate, "regexrouter": regex_router,
    "replacefield": replace_field, "setschemametadata": set_schema_metadata, "simpleheader": simple_header, "string": string,
    "timestampconverter": timestamp_converter, "timestamprouter": timestamp_router, "valuetokey": value_to_key,
}  # fmt: skip
CONVERTERS = {"bytearray", "json", "number", "simpleheader", "string"}


def random_case(family, seed):
    """The case of a family and a seed; the same again for the same seed."""
    rng = Random(f"{family} {seed}")
    kind = "converter" if family in CONVERTERS else "transform"
    return {"kind": kind, "name": f"{family}-{seed}", "family": family, "about": "", **FAMILIES[family](rng)}
