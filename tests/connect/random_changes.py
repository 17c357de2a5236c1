"""Random scenarios of changes in PostgreSQL, without their records: tables of all types, options crossed, schemas that change."""

import json
import random

__all__ = ["random_scenario"]

TEXTS = (
    "",
    "a",
    "ab cd",
    "Grüße",
    "日本",
    "😀",
    "it''s",
    "x\\y",
    "null",
    "{}",
    "a,b",
    "0",
    "  ",
    "ẞ",
    "e\u0301",
    'q"q',
    "%",
)
TYPES = {
    "int2": ("0", "-32768", "32767"), "int4": ("0", "-2147483648", "2147483647", "5"), "int8": ("0", "-9223372036854775808", "9223372036854775807"),
    "float4": ("0", "-0.0", "1.5", "3.4e38", "1e-40", "0.1", "'NaN'", "'Infinity'", "16777217"),
    "float8": ("0", "0.1", "1e300", "-2.5e-300", "'-Infinity'", "'NaN'", "123456789.125", "1e7", "0.001", "1e-4"),
    "numeric": ("0", "1", "-1.50", "12345678901234567890.123456789", "1e20", "0.000001", "100"), "numeric(10,2)": ("0", "1", "-1.5", "99999999.99"),
    "numeric(5,0)": ("0", "99999", "-1"), "numeric(30,10)": ("0", "1", "12345678901234567890.0123456789"), "numeric(3,-2)": ("0", "12300", "-55555"),
    "numeric(2,4)": ("0", "0.0012", "-0.0099"), "numeric(18,18)": ("0", "0.123456789012345678"), "decimal(19,4)": ("0", "1.2345", "-922337203685477.5807"),
    "bool": ("true", "false"), "text": tuple(f"'{each}'" for each in TEXTS), "varchar(20)": tuple(f"'{each}'" for each in TEXTS),
    "char(4)": ("''", "'a'", "'ab c'", "'äöü'", "'😀'"), "bpchar": ("''", "'a  '"), '"char"': ("'a'", "''", "'Z'"), "citext": ("'Ab'", "''"),
    "bytea": ("''", "'\\x00ff'", "'abc'", "'\\xdeadbeef00'"), "bit": ("B'0'", "B'1'"), "bit(3)": ("B'101'", "B'000'", "B'001'"),
    "bit(20)": ("B'10000000000000000001'", "B'00000000000000000000'"), "varbit": ("B''", "B'1'", "B'1010101010'"), "varbit(9)": ("B'1'", "B'100000001'", "B''"),
    "date": ("'2024-02-29'", "'1970-01-01'", "'1969-12-31'", "'1582-10-04'", "'0001-01-01'", "'9999-12-31'", "'5000-06-01'"),
    "time": ("'00:00'", "'23:59:59.999999'", "'12:34:56.789012'", "'24:00'", "'00:00:00.000001'"), "time(0)": ("'12:34:56.5'", "'00:00'"),
    "time(3)": ("'12:34:56.7895'", "'23:59:59.9999'"), "time(1)": ("'12:34:56.78'",), "time(5)": ("'12:34:56.789012'",),
    "timetz": ("'12:34:56.789012+05:30'", "'00:00-08'", "'23:59:59.999999+00'", "'00:00:01+15:59'"), "timetz(2)": ("'12:34:56.789+02'",),
    "timestamp": ("'2024-02-29 12:34:56.789012'", "'1970-01-01'", "'1969-12-31 23:59:59.999999'", "'1500-01-01 01:02:03'", "'0001-01-01'", "'9999-12-31 23:59:59.999999'"),
    "timestamp(0)": ("'2024-02-29 12:34:56.5'", "'1969-12-31 23:59:59'"), "timestamp(2)": ("'2024-02-29 12:34:56.789'", "'1900-01-01 00:00:00.01'"),
    "timestamp(3)": ("'2024-02-29 12:34:56.7891'",), "timestamp(4)": ("'2024-02-29 12:34:56.78912'", "'1969-12-31 23:59:59.9999'"),
    "timestamptz": ("'2024-02-29 12:34:56.789012+02'", "'1970-01-01 00:00+00'", "'1500-01-01 00:00+00'", "'2024-01-01 00:00:00.1-03:30'", "'0001-01-01 00:00+00'", "'9999-12-31 23:59:59.999999+00'"),
    "timestamptz(0)": ("'2024-02-29 12:34:56.5+02'",), "timestamptz(3)": ("'2024-02-29 12:34:56.7896+00'", "'1969-12-31 23:59:59.9996+00'"),
    "interval": ("'1 year 2 months 3 days 04:05:06.789'", "'0'", "'-1 day'", "'1 mon -1 day'", "'100 years'", "'00:00:00.000001'", "'-04:05'", "'1 year -2 mons 3 days -04:05:06.7'"),
    "uuid": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",), "json": ("'{}'", "'{\"a\": [1, null,  \"é\"]}'", "'null'", "'  1 '"),
    "jsonb": ("'{}'", "'{\"b\": 1.50, \"a\": [1, null, \"é\"]}'", "'null'", "'1e3'"), "xml": ("'<a>é</a>'", "''"),
    "inet": ("'1.2.3.4'", "'::1/64'", "'10.0.0.0/8'"), "cidr": ("'10.0.0.0/8'", "'2001:db8::/32'"), "macaddr": ("'08:00:2b:01:02:03'",), "macaddr8": ("'08:00:2b:01:02:03:04:05'",),
    "money": ("0", "1.25", "'1000.5'::money", "'-12.34'::money"), "point": ("'(1,2)'", "'(-0.5,1e10)'", "'(0,0)'"), "oid": ("0", "4294967295"),
    "int4range": ("'[1,5)'", "'empty'", "'(,3]'"), "int8range": ("'[1,)'",), "numrange": ("'[1.5,2]'", "'(,)'"), "daterange": ("'[2024-01-01,2024-02-01]'",),
    "tsrange": ("'[2024-01-01 00:00,2024-01-02 12:34:56.7)'",), "tstzrange": ("'[2024-01-01 00:00+00,)'",), "ltree": ("'a.b.c'",), "hstore": ("'a=>1'", "'a=>NULL,\"b c\"=>\"é\"'", "''"),
    "tsvector": ("'a:1 b:2A'",), "line": ("'{1,2,3}'",), "box": ("'(1,2),(0,0)'",), "path": ("'[(0,0),(1,1)]'",), "circle": ("'<(0,0),1>'",), "pg_lsn": ("'0/16B3748'",),
    "int4multirange": ("'{[1,2),[5,6)}'",), "mood": ("'ok'", "'so so'", "'ÜBER'"), "posint": ("1", "77"), "pair": ("'(1,x)'", "'(,)'"), "shorttext": ("'abc'", "''"), "cents": ("1.25", "0"),
    "int2[]": ("'{}'", "'{1,NULL,-3}'"), "int4[]": ("'{}'", "'{1,NULL,3}'", "'{2147483647}'"), "int8[]": ("'{9223372036854775807,NULL}'", "'{}'"), "text[]": ("'{}'", "'{a,NULL,\"b,c\",\"\"}'", "'{\"q\\\"q\",é}'"),
    "varchar(5)[]": ("'{ab,NULL}'",), "char(3)[]": ("'{a,ab}'",), "bool[]": ("'{t,f,NULL}'",), "float4[]": ("'{1.5,NULL,NaN}'",), "float8[]": ("'{0.1,Infinity,1e300}'", "'{}'"), "numeric(8,3)[]": ("'{1.5,NULL,-2}'", "'{}'"),
    "numeric[]": ("'{1.50,12345678901234567890}'",), "date[]": ("'{2024-02-29,NULL,1900-01-01}'",), "timestamp[]": ("'{\"2024-02-29 12:34:56.789012\",NULL}'",), "timestamptz[]": ("'{\"2024-02-29 12:34:56.789012+02\"}'",),
    "timestamp(3)[]": ("'{\"2024-02-29 12:34:56.7891\"}'",), "uuid[]": ("'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,NULL}'",), "jsonb[]": ("'{\"{\\\"a\\\": 1}\"}'",), "json[]": ("'{\"{\\\"a\\\":1}\"}'",), "mood[]": ("'{ok,\"so so\"}'",), "inet[]": ("'{1.2.3.4}'",), "bytea[]": ("'{\"\\\\\\\\x01ff\"}'",),
    "oid[]": ("'{1,4294967295}'",), "citext[]": ("'{Ab,NULL}'",), "time(3)[]": ("'{12:34:56.789}'",), "bpchar[]": ("'{a}'",), "macaddr[]": ("'{08:00:2b:01:02:03}'",), "ltree[]": ("'{a.b}'",), "cidr[]": ("'{10.0.0.0/8}'",), "int4range[]": ("'{\"[1,2)\"}'",), "numrange[]": ("'{\"[1,2)\"}'",),
}  # fmt: skip
KEYS = (
    "int4",
    "int8",
    "int2",
    "text",
    "varchar(20)",
    "uuid",
    "date",
    "timestamp",
    "numeric(10,2)",
    "bytea",
    "serial",
    "char(4)",
    "timestamptz",
    "float8",
    "posint",
    "time",
    "citext",
)
MAKING = (
    "CREATE EXTENSION citext", "CREATE EXTENSION ltree", "CREATE EXTENSION hstore", "CREATE TYPE mood AS ENUM ('ok','so so','ÜBER')",
    "CREATE DOMAIN posint AS int CHECK (VALUE > 0)", "CREATE TYPE pair AS (a int, b text)", "CREATE DOMAIN shorttext AS varchar(5)", "CREATE DOMAIN cents AS numeric(12,2) DEFAULT 0",
)  # fmt: skip
DEFAULTS = {
    "int4": ("7", "(1+2)", "-3"), "int8": ("7", "'5'"), "int2": ("3",), "text": ("'d'", "'it''s'", "'a'||'b'", "upper('x')", "''", "NULL"), "varchar(20)": ("'é'", "'x'::varchar"), "bool": ("true", "false", "NOT false"),
    "float8": ("1.5", "1e10", "-0.5"), "float4": ("2.5",), "numeric(10,2)": ("1.5", "12", "-3.25"), "numeric": ("1.5", "3"), "date": ("'2024-02-29'", "CURRENT_DATE"), "timestamp": ("'2024-02-29 12:34:56.789'", "now()", "LOCALTIMESTAMP"),
    "timestamptz": ("'2024-02-29 12:34:56+02'", "now()", "CURRENT_TIMESTAMP"), "time": ("'12:34:56'", "LOCALTIME"), "uuid": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "gen_random_uuid()"), "jsonb": ("'{}'", "'{\"a\": 1}'"), "json": ("'[]'",), "bytea": ("'\\xff'", "'abc'"),
    "mood": ("'ok'", "'so so'::mood"), "int4[]": ("'{}'", "'{1,2}'", "ARRAY[1,2]"), "text[]": ("'{}'", "ARRAY['a']"), "char(4)": ("'ab'",), "interval": ("'1 day'", "'1 year 2 months'"), "bit(3)": ("B'101'",), "bit": ("B'1'",), "money": ("1.5",), "inet": ("'1.2.3.4'",), "citext": ("'Ab'",),
    "hstore": ("'a=>1'",), "posint": ("4",), "cents": ("1.5",), "timetz": ("'12:34:56+02'",), "time(3)": ("'12:34:56.789'",), "timestamp(3)": ("'2024-02-29 12:34:56.789'",), "point": ("'(1,2)'",), "xml": ("'<a/>'",), "numeric(5,0)": ("12",), "numeric(30,10)": ("1.5",), "shorttext": ("'ab'",), "varbit": ("B'101'",),
    "date[]": ("'{2024-02-29}'",), "timestamp(0)": ("'2024-02-29 12:34:56'",), "oid": ("5",), "macaddr": ("'08:00:2b:01:02:03'",), "int4range": ("'[1,5)'",), "ltree": ("'a.b'",), '"char"': ("'a'",), "mood[]": ("'{ok}'",), "numeric(8,3)[]": ("'{1.5}'",), "bool[]": ("'{t}'",),
}  # fmt: skip
MOVING = ("now", "CURRENT", "LOCAL", "random")  # defaults that are another value each time: never left to the server
NAMES = ("v", "n", "Mixed", "ä", "with space", "order", "a.b", "x-y", "v2", "_u", "1st", "deleted", "op")
TABLES = ("t", "u", "Orders", "w ä", "t_2", "x.y", "T")
LARGE = {
    "text": "repeat('x', 3000)", "bytea": "decode(repeat('ab', 3000), 'hex')", "jsonb": "jsonb_build_object('k', repeat('y', 3000))",
    "text[]": "ARRAY[repeat('x', 3000)]", "int4[]": "array_fill(7, ARRAY[1000])",
}  # fmt: skip # values that an update of another column does not send
OPTIONS = {
    "decimal.handling.mode": ("precise", "double", "string"), "time.precision.mode": ("adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"),
    "binary.handling.mode": ("bytes", "base64", "base64-url-safe", "hex"), "hstore.handling.mode": ("json", "map"), "interval.handling.mode": ("numeric", "string"),
    "include.unknown.datatypes": ("true", "false"), "tombstones.on.delete": ("true", "false"), "skipped.operations": ("none", "t", "u", "d", "c", "u,d", "t,c"),
    "provide.transaction.metadata": ("true",), "schema.name.adjustment.mode": ("avro", "avro_unicode", "none"), "field.name.adjustment.mode": ("avro", "avro_unicode"),
    "topic.delimiter": ("_", "-"), "skip.messages.without.change": ("true",), "unavailable.value.placeholder": ("gone", "", "hex:00ff"),
    "publication.autocreate.mode": ("all_tables", "filtered"), "publish.via.partition.root": ("true",), "snapshot.mode": ("initial", "no_data", "always", "when_needed", "never"),
    "column.propagate.source.type": (".*", "public.t.v", ".*\\.n"), "datatype.propagate.source.type": (".*", ".*text", ".*\\.numeric"), "schema.refresh.mode": ("columns_diff_exclude_unchanged_toast", "columns_diff"),
    "max.batch.size": ("1",), "snapshot.fetch.size": ("1",), "extended.headers.enabled": ("false",), "include.schema.comments": ("true",), "snapshot.isolation.mode": ("repeatable_read", "read_committed"),
    "replica.identity.autoset.values": ("public.t:FULL", "public.*:FULL,x.y:DEFAULT", "public.u:NOTHING"), "lsn.flush.mode": ("connector", "manual"), "snapshot.tables.order.by.row.count": ("descending", "ascending"),
    "topic.cache.size": ("10",), "event.processing.failure.handling.mode": ("warn", "skip"), "snapshot.include.collection.list": ("public.t", "public.*"), "topic.transaction": ("tx",), "snapshot.max.threads": ("1", "2"),
}  # fmt: skip
UNWRAP = {
    "add.fields": ("op", "op,table,lsn", "op:o,source.ts_ms:t", "before.id", "source.db,ts_ms"), "add.headers": ("op", "op,db,source.schema"), "add.fields.prefix": ("", "x_"), "add.headers.prefix": ("h.",),
    "delete.tombstone.handling.mode": ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone"), "drop.fields.header.name": ("f",), "route.by.field": ("id",), "replace.null.with.default": ("true", "false"),
}  # fmt: skip

INVALID = {
    "decimal.handling.mode": ("exact", "", "PRECISE"), "time.precision.mode": ("micros", "Connect"), "binary.handling.mode": ("base32", "BASE64"), "hstore.handling.mode": ("text",), "interval.handling.mode": ("iso",),
    "snapshot.mode": ("sometimes", "INITIAL", "schema_only", "no_data"), "skipped.operations": ("x", "c,x", "none,c", ""), "topic.prefix": ("a b", "ä", ""), "slot.name": ("A", "a-b", "x" * 64), "plugin.name": ("wal2json", "x"),
    "publication.autocreate.mode": ("never", "FILTERED"), "message.key.columns": ("t", "public.t:", "a:b;c"), "max.batch.size": ("0", "x", "-1"), "max.queue.size": ("1", "0"), "poll.interval.ms": ("-1", "x"),
    "table.include.list": ("(", "public.t,("), "column.include.list": ("[",), "schema.name.adjustment.mode": ("x",), "field.name.adjustment.mode": ("x",), "tombstones.on.delete": ("yes", "TRUE"), "replica.identity.autoset.values": ("public.t", "public.t:SOME", ""),
    "event.processing.failure.handling.mode": ("x", "ignore"), "incremental.snapshot.chunk.size": ("0", "-1", "x"), "heartbeat.interval.ms": ("-1", "x"), "database.port": ("x", "0"), "snapshot.isolation.mode": ("x",), "snapshot.locking.mode": ("x",), "topic.delimiter": ("", "#", "//"),
    "topic.transaction": ("", "a b"), "schema.refresh.mode": ("x",), "snapshot.fetch.size": ("x", "-1"), "database.sslmode": ("x",), "snapshot.select.statement.overrides": ("public.t",), "signal.enabled.channels": ("x",), "notification.enabled.channels": ("sink",), "lsn.flush.mode": ("x",),
    "column.truncate.to.-1.chars": ("public.t.v",), "snapshot.max.threads": ("0", "x"), "xmin.fetch.interval.ms": ("-1",), "status.update.interval.ms": ("-1", "0"), "provide.transaction.metadata": ("x",), "guardrail.collections.max": ("-1", "0"), "snapshot.delay.ms": ("-1",),
}  # fmt: skip


class Table:
    """A table of a scenario.

    Args:
        name: Its name.
        columns: The types of its columns, by name.
        keys: The columns of its primary key.
        required: The columns that are never null.
    """

    def __init__(self, name, columns, keys, required):
        self.name, self.columns, self.keys, self.required = name, columns, keys, required
        self.rows, self.identity, self.large = 0, "DEFAULT", set()

    @property
    def quoted(self):
        return quoted(self.name)


class Scenario:
    """One scenario.

    Args:
        rng: The source of choices.
    """

    def __init__(self, rng):
        self.rng, self.tables, self.before, self.config = rng, [], list(MAKING), {}

    def one(self, options):
        return self.rng.choice(options)

    def chance(self, part):
        return self.rng.random() < part

    def made(self):
        for name in self.rng.sample(TABLES, self.one((1, 1, 1, 2, 3))) if self.chance(0.4) else ["t"]:
            self.before += self.table(name)
        for table in self.tables:
            for _ in range(self.one((0, 1, 2))):
                self.before.append(self.insert(table))
        self.options()
        roll = self.rng.random()
        if roll < 0.1:
            self.config = {} if self.chance(0.7) else self.config
            setting = self.one(sorted(INVALID))
            self.config[setting] = self.one(INVALID[setting])
        elif roll < 0.2:
            self.config["signal.data.collection"] = "public.sig"
            self.before.append(
                "CREATE TABLE sig (id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048))"
            )
        steps = [self.step() for _ in range(self.one((2, 3, 4)))]
        if 0.1 < roll < 0.2:
            steps.insert(self.one((0, 1, 2)), {"sql": [self.signal()]})
        if self.chance(0.25):
            steps.append({"restart": True, "sql": self.changes()})
            steps.append(self.step())
        return {
            "connector": self.config,
            "before": self.before,
            "snapshot": [],
            "steps": steps,
            "headers": {},
            "schemas": {},
        }

    def signal(self):
        table = self.one(self.tables)
        kind = self.one(("execute-snapshot",) * 4 + ("stop-snapshot", "log", "nope"))
        data = {
            "data-collections": [self.one((f"public.{table.name}", "public.*", "public.none"))],
            "type": self.one(("incremental", "INCREMENTAL")),
        }
        if kind == "log":
            data = {"message": "hello {}"}
        return f"INSERT INTO sig VALUES ('s{self.rng.randrange(1000)}', '{kind}', '{json.dumps(data, ensure_ascii=False)}')"

    def table(self, name):
        kinds = self.rng.sample(sorted(TYPES), self.one((1, 2, 3, 4, 6)))
        columns, parts = {}, []
        roll = self.rng.random()
        keys = [] if roll < 0.12 else ["id"] if roll < 0.85 else ["id", "k2"]
        for key in keys or ["id"]:
            columns[key] = "int4" if self.chance(0.6) else self.one(KEYS)
        columns |= dict(zip(self.rng.sample(NAMES, len(kinds)), kinds, strict=True))
        required = set()
        for column, kind in columns.items():
            rest = "" if column in keys or kind == "serial" else self.rest(kind)
            parts.append(f"{quoted(column)} {kind}{rest}")
            if "NOT NULL" in rest or any(each in rest for each in MOVING):
                required.add(column)
        columns.update({each: "int4" for each, kind in columns.items() if kind == "serial"})
        if keys:
            parts.append(f"PRIMARY KEY ({', '.join(quoted(each) for each in keys)})")
        table = Table(name, columns, keys, required)
        self.tables.append(table)
        sql = [f"CREATE TABLE {table.quoted} ({', '.join(parts)})"]
        roll = self.rng.random()
        if roll < 0.35 or (not keys and roll < 0.6):
            table.identity = "NOTHING" if 0.3 < roll < 0.35 else "FULL"
            sql.append(f"ALTER TABLE {table.quoted} REPLICA IDENTITY {table.identity}")
        texts = [
            each
            for each, kind in columns.items()
            if kind in ("text", "bytea", "jsonb", "text[]", "int4[]") and each not in keys
        ]
        for column in texts if self.chance(0.5) else ():
            sql.append(f"ALTER TABLE {table.quoted} ALTER COLUMN {quoted(column)} SET STORAGE EXTERNAL")
            table.large.add(column)
        if self.chance(0.05):
            sql.append(f"COMMENT ON COLUMN {table.quoted}.id IS 'the key'")
        return sql

    def rest(self, kind):
        made = ""
        if kind in DEFAULTS and self.chance(0.35):
            made = f" DEFAULT {self.one(DEFAULTS[kind])}"
            if made == " DEFAULT NULL":
                return made
        return made + (" NOT NULL" if self.chance(0.25) else "")

    def value(self, table, column):
        kind = table.columns[column]
        if column in table.keys or column == "id":
            return key_value(kind, table.rows)
        if column not in table.required and self.chance(0.2):
            return "NULL"
        if column in table.large and kind in LARGE and self.chance(0.6):
            return LARGE[kind]
        return self.one(TYPES[kind])

    def insert(self, table):
        table.rows += 1
        chosen = [
            each
            for each in table.columns
            if each in table.keys or each == "id" or self.chance(0.9) or each in table.required
        ]
        return (
            f"INSERT INTO {table.quoted} ({', '.join(map(quoted, chosen))}) VALUES "
            f"({', '.join(self.value(table, each) for each in chosen)})"
        )

    def update(self, table):
        others = [each for each in table.columns if each not in table.keys and each != "id"]
        if not others or (table.keys and self.chance(0.1)):
            table.rows += 1
            return f"UPDATE {table.quoted} SET id = {key_value(table.columns['id'], table.rows)} WHERE id = {key_value(table.columns['id'], table.rows - 1)}"
        column = self.one(others)
        return f"UPDATE {table.quoted} SET {quoted(column)} = {self.value(table, column)}"

    def change(self):
        table = self.one(self.tables)
        roll = self.rng.random()
        has_identity = table.identity == "FULL" or (table.keys and table.identity == "DEFAULT")
        if roll < 0.5 or not has_identity or table.rows == 0:
            return self.insert(table)
        if roll < 0.75:
            return self.update(table)
        if roll < 0.9:
            return f"DELETE FROM {table.quoted} WHERE id = {key_value(table.columns['id'], table.rows)}"
        if roll < 0.95:
            return f"TRUNCATE {table.quoted}"
        return f"SELECT pg_logical_emit_message({self.one(('true', 'false'))}, '{self.one(('p', 'é', 'q.r'))}', '{self.one(('', 'text', 'ü'))}')"

    def changes(self):
        roll = self.rng.random()
        made = self.alter() if roll < 0.25 else self.remade() if roll < 0.35 else []
        made += [self.change() for _ in range(self.one((1, 2, 3)))]
        return ["BEGIN", *made, self.one(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK"))] if roll > 0.7 else made

    def remade(self):
        """A table that is made, renamed, dropped or gets another key while the connector runs."""
        table, roll = self.one(self.tables), self.rng.random()
        free = [each for each in TABLES if each not in [other.name for other in self.tables]]
        if roll < 0.35 and free:
            return self.table(self.one(free))
        if roll < 0.5 and free:
            old = table.quoted
            table.name = self.one(free)
            return [f"ALTER TABLE {old} RENAME TO {table.quoted}"]
        if roll < 0.6 and len(self.tables) > 1:
            self.tables.remove(table)
            return [f"DROP TABLE {table.quoted}"]
        if roll < 0.75:
            return [f"ALTER TYPE mood ADD VALUE 'new{self.rng.randrange(10**6)}'"]
        others = [each for each in table.columns if each not in table.keys and each != "id"]
        if table.keys and others and roll < 0.9:
            return [f"ALTER TABLE {table.quoted} ALTER COLUMN {quoted(self.one(others))} DROP NOT NULL"]
        if not table.keys:
            table.keys = ["id"]
            return [
                f"DELETE FROM {table.quoted}" if table.identity == "FULL" else f"TRUNCATE {table.quoted}",
                f"ALTER TABLE {table.quoted} ADD PRIMARY KEY (id)",
            ]
        return [f"CREATE UNIQUE INDEX ON {table.quoted} (id)"]

    def alter(self):
        table = self.one(self.tables)
        others = [each for each in table.columns if each not in table.keys and each != "id"]
        roll = self.rng.random()
        if roll < 0.45 or not others:
            free = [each for each in NAMES if each not in table.columns]
            name, kind = self.one(free), self.one(sorted(TYPES))
            still = [each for each in DEFAULTS.get(kind, ()) if not any(part in each for part in MOVING)]
            default = f" DEFAULT {self.one(still)}" if still and self.chance(0.5) else ""
            required = " NOT NULL" if default not in ("", " DEFAULT NULL") and self.chance(0.4) else ""
            table.columns[name] = kind
            if required:
                table.required.add(name)
            return [f"ALTER TABLE {table.quoted} ADD COLUMN {quoted(name)} {kind}{default}{required}"]
        name = self.one(others)
        if roll < 0.6:
            del table.columns[name]
            return [f"ALTER TABLE {table.quoted} DROP COLUMN {quoted(name)}"]
        if roll < 0.7:
            free = self.one([each for each in NAMES if each not in table.columns])
            table.columns = {free if each == name else each: kind for each, kind in table.columns.items()}
            table.required = {free if each == name else each for each in table.required}
            return [f"ALTER TABLE {table.quoted} RENAME COLUMN {quoted(name)} TO {quoted(free)}"]
        if roll < 0.8:
            if table.columns[name] not in ("int2", "int4", "int8", "text", "varchar(20)", "bool", "date", "uuid"):
                return []
            table.columns[name] = "text"
            return [
                f"ALTER TABLE {table.quoted} ALTER COLUMN {quoted(name)} DROP DEFAULT",
                f"ALTER TABLE {table.quoted} ALTER COLUMN {quoted(name)} TYPE text",
            ]
        if roll < 0.9 and table.columns[name] in DEFAULTS:
            table.required.add(name)
            return [
                f"ALTER TABLE {table.quoted} ALTER COLUMN {quoted(name)} SET DEFAULT {self.one(DEFAULTS[table.columns[name]])}"
            ]
        table.identity = self.one(("FULL", "DEFAULT", "DEFAULT"))
        return [f"ALTER TABLE {table.quoted} REPLICA IDENTITY {table.identity}"]

    def step(self):
        return {"sql": self.changes()}

    def options(self):
        for name in self.rng.sample(sorted(OPTIONS), self.one((0, 1, 2, 3, 4))):
            self.config[name] = self.one(OPTIONS[name])
        table = self.one(self.tables)
        column = self.one(sorted(table.columns))
        place = "public\\." + escaped(table.name)
        if self.chance(0.08):
            self.config[f"column.{self.one(('exclude', 'include'))}.list"] = f"{place}\\.{escaped(column)}"
        if self.chance(0.08):
            self.config[f"column.truncate.to.{self.one((0, 1, 3))}.chars"] = self.masked(place, table)
        if self.chance(0.05):
            self.config[f"column.mask.with.{self.one((0, 4))}.chars"] = self.masked(place, table)
        if self.chance(0.05):
            self.config[
                f"column.mask.hash{self.one(('', '.v2'))}.{self.one(('SHA-256', 'MD5', 'SHA-512'))}.with.salt.x"
            ] = self.masked(place, table)
        if self.chance(0.08) and column not in ("with space", "ä", "a.b"):
            self.config["message.key.columns"] = f"{place}:{column}"
        if self.chance(0.08):
            self.config[f"table.{self.one(('include', 'exclude'))}.list"] = self.one(
                (place, "public.t", "public\\..*", "T")
            )
        if self.chance(0.25):
            self.config |= {"transforms": "x", "transforms.x.type": "io.debezium.transforms.ExtractNewRecordState"}
            for name in self.rng.sample(sorted(UNWRAP), self.one((0, 1, 2, 3))):
                self.config[f"transforms.x.{name}"] = self.one(UNWRAP[name])
        if self.chance(0.05):
            self.config["message.prefix.include.list"] = self.one(("p", "é", "q.*"))
        if self.chance(0.05):
            self.config |= {
                f"snapshot.select.statement.overrides.public.{table.name}": f"SELECT * FROM {table.quoted} LIMIT 1",
                "snapshot.select.statement.overrides": f"public.{table.name}",
            }
        if self.chance(0.05):
            self.config |= {"heartbeat.interval.ms": "1"}

    def masked(self, place, table):
        texts = [
            each
            for each, kind in table.columns.items()
            if kind.split("(")[0] in ("text", "varchar") and each not in table.keys
        ]
        return f"{place}\\.{escaped(self.one(texts))}" if texts else f"{place}\\.none"


def quoted(name):
    return f'"{name}"'


def escaped(name):
    return name.replace(".", "\\.")


def key_value(kind, number):
    """The number as a key of a type."""
    match kind.split("(")[0]:
        case "int2" | "int4" | "int8" | "serial" | "posint" | "float8" | "numeric":
            return str(number)
        case "uuid":
            return f"'00000000-0000-4000-8000-{number:012}'"
        case "date" | "timestamp" | "timestamptz":
            return f"'{2000 + number}-02-03'"
        case "bool":
            return "true" if number % 2 else "false"
        case "bytea":
            return f"'\\x{number:04x}'"
        case "mood":
            return ("'ok'", "'so so'", "'ÜBER'")[number % 3]
        case "time":
            return f"'{number % 24:02}:00:01.5'"
        case "char":
            return f"'é{number}'"
    return f"'k{number}'"


def random_scenario(seed):
    """The scenario of a seed; the same again for the same seed."""
    return {"name": f"random_{seed}", "about": "", **Scenario(random.Random(f"changes {seed}")).made()}
