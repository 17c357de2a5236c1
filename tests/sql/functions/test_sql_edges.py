"""Edges of the scalar functions: nulls, bounds, errors that become null, and types that are refused."""

import pytest
from sql_expressions import evaluate

from penstock.base.java_text.regex import compile_java
from penstock.base.java_text.texts import JavaTextError
from penstock.sql.functions import EvaluationErrors, scalar_functions
from penstock.sql.functions.java_dates import date_pattern
from penstock.sql.functions.patterns import LambdaPattern, Variable
from penstock.sql.types import (
    BIGINT,
    BYTES,
    INTEGER,
    NULL,
    STRING,
    ArrayType,
    DecimalType,
    MapType,
    SqlTypeError,
)

FUNCTIONS = list(scalar_functions())
ODD = ArrayType(ArrayType(MapType(STRING, BYTES)))


def concrete(pattern):
    """A type in place of each variable of a signature."""
    match pattern:
        case Variable("DECIMAL"):
            return DecimalType(4, 1)
        case Variable():
            return INTEGER
        case ArrayType(inner):
            return ArrayType(concrete(inner))
        case MapType(key, value):
            return MapType(concrete(key), concrete(value))
    return pattern


SIGNATURES = [
    (o, s)
    for f in FUNCTIONS
    for o in f.overloads
    for s in o.signatures
    if not any(isinstance(p.type, LambdaPattern) for p in s.parameters)
]


@pytest.mark.parametrize(("overload", "signature"), SIGNATURES, ids=[str(s) for _, s in SIGNATURES])
def test_each_signature_binds_to_its_own_types_and_takes_nulls(overload, signature):
    kinds = [concrete(parameter.type) for parameter in signature.parameters]
    bound = scalar_functions().resolve(signature.name, kinds)
    assert bound.type != NULL
    if kinds and not overload.nulls:
        assert bound.call(*[None] * len(kinds)) is None
    elif kinds:
        bound.safe(EvaluationErrors())(*[None] * len(kinds))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_wrong_types_are_refused(function):
    count = max(len(signature.parameters) for signature in function.signatures) + 3
    with pytest.raises(
        SqlTypeError, match="has no signature for the parameters" if function.name != "COALESCE" else "No function"
    ):
        scalar_functions().resolve("NO_SUCH" if function.name == "COALESCE" else function.name, [ODD, INTEGER] * count)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("ABS(-2147483648)", 2147483648),
        ("ABS(CAST('-2147483648' AS INTEGER))", -2147483648),
        ("ROUND(-2.5E0)", -2),
        ("ROUND(1E300)", 2**63 - 1),
        ("SQRT(-1) = 1", False),
        ("LN(0)", float("-inf")),
        ("POWER(0, -1)", float("inf")),
        ("EXP(1000)", float("inf")),
        ("SINH(-1000)", float("-inf")),
        ("LPAD('ab', -1, 'x')", None),
        ("LPAD('ab', 2000000000, 'x')", None),
        ("RPAD('ab', 5, '')", None),
        ("SUBSTRING('abc', -5)", "abc"),
        ("SUBSTRING('abc', 7)", ""),
        ("SUBSTRING('abc', 2, -1)", ""),
        ("INSTR('abc', 'x')", 0),
        ("INSTR('banana', 'an', 1, 2)", 4),
        ("INSTR('banana', 'an', 0)", 0),
        ("INSTR('banana', 'an', 7)", 0),
        ("INSTR(CAST(NULL AS STRING), 'an')", 0),
        ("INSTR('banana', CAST(NULL AS STRING), 1)", 0),
        ("INSTR('banana', '', 3)", 3),
        ("MD5('')", "d41d8cd98f00b204e9800998ecf8427e"),
        ("MD5('é')", "66ddcd97cfdeabb2f6fb8a999b4bc76f"),
        ("MD5(CAST(NULL AS STRING))", None),
        ("FROM_BYTES(TO_BYTES('1aB2', 'hex'), 'hex')", "1AB2"),
        ("TO_BYTES('1aB', 'hex')", None),
        ("TO_BYTES('0x1a', 'hex')", None),
        ("TO_BYTES('1a b2', 'hex')", None),
        ("TO_BYTES('', 'hex')", b""),
        ("TO_BYTES('YQ', 'base64')", b"a"),
        ("TO_BYTES('YQ=', 'base64')", None),
        ("TO_BYTES('Y-_=', 'base64')", None),
        ("ENCODE('', 'hex', 'utf8')", ""),
        ("ENCODE('0x', 'hex', 'utf8')", ""),
        ("ENCODE('X''''', 'hex', 'utf8')", ""),
        ("ENCODE('X''', 'hex', 'utf8')", None),
        ("ENCODE('0x578', 'hex', 'base64')", "BXg="),
        ("ENCODE('578', 'hex', 'base64')", None),
        ("ENCODE('é', 'utf8', 'hex')", "c3a9"),
        ("ENCODE('w6k', 'base64', 'utf8')", "é"),
        ("ENCODE('w-_k', 'base64', 'hex')", "c3efe4"),
        ("ENCODE('a', 'utf8', 'utf8')", None),
        ("ENCODE('a', 'utf8', 'latin')", None),
        ("SPLIT_TO_MAP('a:b/c&&d:e', '&&', ':')", {"a": "b/c", "d": "e"}),
        ("SPLIT_TO_MAP('a:b:c', '/', ':')", {"a": "b"}),
        ("SPLIT_TO_MAP(':b', '/', ':')", {"": "b"}),
        ("SPLIT_TO_MAP('a:b', ':', ':')", None),
        ("INITCAP('  the QUICK')", "The Quick"),
        ("CHR('\\u004bx\\n\\101')", "Kx\nA"),
        ("CHR('\\u00zzzz')", None),
        ("MASK('Ab1', 'XX', 'x', 'n', '-')", None),
        ("MASK('A²ǅ')", "X--"),
        ("REGEXP_SPLIT_TO_ARRAY('ab', '')", ["a", "b"]),
        ("REGEXP_SPLIT_TO_ARRAY('a1b22', '[0-9]*')", ["a", "", "b"]),
        ("REGEXP_SPLIT_TO_ARRAY('1a1', '1')", ["", "a", ""]),
        ("ARRAY_JOIN(ARRAY[ARRAY[1]])", None),
        ("ARRAY_JOIN(ARRAY[TO_BYTES('a', 'utf8')])", None),
        ("AS_MAP(ARRAY['a', 'b'], ARRAY[1])", {"a": 1, "b": None}),
        ("GEO_DISTANCE(0E0, 0E0, 0E0, 0E0, ' Miles ')", 0.0),
        ("GEO_DISTANCE(0E0, 0E0, 0E0, 0E0, 'kms')", None),
        ("UNIX_DATE(DATEADD(HOURS, -1, FROM_DAYS(0)))", 0),
        ("PARSE_DATE('2020-01-01 10', 'yyyy-MM-dd HH')", None),
        ("PARSE_TIME('2020 10:00', 'yyyy HH:mm')", None),
        ("INITCAP('')", ""),
        ("SPLIT('', ',')", [""]),
        ("SPLIT_TO_MAP('a=1', '', '=')", None),
        ("CHR(-1)", None),
        ("CHR('x')", None),
        ("MASK_LEFT('abc', -1)", None),
        ("MASK_RIGHT('ab', 5)", "xx"),
        ("CONCAT_WS(CAST(NULL AS STRING), 'a', 'b')", None),
        ("CONCAT(CAST(NULL AS STRING), NULL)", ""),
        ("ENCODE('zz', 'hex', 'utf8')", None),
        ("ENCODE('0x4a', 'hex', 'ascii')", "J"),
        ("TO_BYTES('a', 'rot13')", None),
        ("INT_FROM_BYTES(TO_BYTES('01', 'hex'))", None),
        ("UUID(TO_BYTES('00', 'hex'))", None),
        ("ELT(0, 'a')", None),
        ("FIELD(CAST(NULL AS STRING), 'a')", 0),
        ("SLICE(ARRAY[1, 2, 3], NULL, 2)", [1, 2]),
        ("SLICE(ARRAY[1, 2, 3], 0, 2)", None),
        ("ARRAY_SORT(ARRAY[1], 'sideways')", None),
        ("ARRAY_DISTINCT(ARRAY[ARRAY[1], ARRAY[1]])", [[1]]),
        ("ARRAY_CONTAINS(ARRAY[1, NULL], CAST(NULL AS INTEGER))", True),
        ("ARRAY_LENGTH(CAST(NULL AS ARRAY<INTEGER>))", None),
        ("GENERATE_SERIES(1, 3, 0)", None),
        ("GENERATE_SERIES(1, 3, -1)", None),
        ("GENERATE_SERIES(1, 2147483647)", None),
        ("MAP_UNION(CAST(NULL AS MAP<STRING, INTEGER>), MAP('a' := 1))", {"a": 1}),
        ("EXTRACTJSONFIELD('{', '$.a')", None),
        ("EXTRACTJSONFIELD('{\"a\": 1.50}', '$.a')", "1.50"),
        ("EXTRACTJSONFIELD('{\"a\": [1E2, -0.0]}', '$.a')", "[1E+2,0.0]"),
        ("EXTRACTJSONFIELD('{\"a\": null}', '$.a')", "null"),
        ("EXTRACTJSONFIELD('[[1], [2, 3]]', '$[1].1')", "3"),
        ("EXTRACTJSONFIELD('{\"a\": {\"0\": 7}}', '$.a[0]')", "7"),
        ("EXTRACTJSONFIELD('NaN', '$')", None),
        ("IS_JSON_STRING('Infinity')", False),
        ('JSON_RECORDS(\'{"a": 2.50, "b": null}\')', {"a": "2.50", "b": "null"}),
        ("JSON_ITEMS('[1.10, 3]')", ["1.10", "3"]),
        ("JSON_CONCAT('[1.10]', '2.0')", "[1.10,2.0]"),
        ("JSON_CONCAT('1')", "1"),
        ("JSON_ARRAY_CONTAINS('[1.50]', 1.5E0)", True),
        ("JSON_ARRAY_CONTAINS('[1', 1)", False),
        ("TO_JSON_STRING(MAP('b' := 1, 'a' := 2))", '{"a":2,"b":1}'),
        ("TO_JSON_STRING(STRUCT(b := 1, a := 2))", '{"A":2,"B":1}'),
        ("EXTRACTJSONFIELD('{\"a b\": [1]}', '$[\"a b\"][0]')", "1"),
        ("EXTRACTJSONFIELD('{}', 'a')", None),
        ("IS_JSON_STRING('abc')", False),
        ("JSON_ARRAY_LENGTH('{}')", None),
        ("JSON_KEYS('[]')", None),
        ("REGEXP_EXTRACT('(', 'a')", None),
        ("REGEXP_EXTRACT('a', 'a', 1)", None),
        ("REGEXP_SPLIT_TO_ARRAY('abc', '')", ["a", "b", "c"]),
        ("REGEXP_REPLACE('abc', 'b', '$9')", None),
        ("URL_EXTRACT_HOST('http://[::1]:80/')", "[::1]"),
        ("URL_EXTRACT_HOST('not a url')", None),
        ("URL_EXTRACT_PARAMETER('http://a/?x', 'x')", ""),
        ("URL_EXTRACT_PARAMETER('http://a/?y', 'x')", None),
        ("URL_EXTRACT_PATH('mailto:ann@example.org')", None),
        ("URL_DECODE_PARAM('%zz')", None),
        ("GEO_DISTANCE(91, 0, 0, 0)", None),
        ("GEO_DISTANCE(0, 0, 0, 1, 'parsec')", None),
        ("CONVERT_TZ(FROM_UNIXTIME(0), 'UTC', 'Mars/Base')", None),
        ("FORMAT_DATE(FROM_DAYS(0), 'bogus')", None),
        ("FORMAT_DATE(FROM_DAYS(0), 'yyyy HH')", None),
        ("FORMAT_DATE(CAST('2021-12-27' AS DATE), 'YYYY-w W')", "2022-1 5"),
        ("FORMAT_TIME(CAST('10:00' AS TIME), 'HH yyyy')", None),
        ("STRINGTODATE('2020-02-30', 'yyyy-MM-dd')", 18321),
        ("PARSE_DATE('2020-02-32', 'yyyy-MM-dd')", None),
        ("PARSE_DATE('2020-01', 'YYYY-MM')", None),
        ("PARSE_TIMESTAMP('2020-01-01 x', 'yyyy-MM-dd')", None),
        ("STRINGTODATE('2020-01-01 x', 'yyyy-MM-dd')", 18262),
        ("COALESCE(CAST(NULL AS STRING))", None),
        ("NULLIF(1, CAST(NULL AS INTEGER))", 1),
        ("TRANSFORM(ARRAY[1, NULL], x => x + 1)", None),
        ("TRANSFORM(MAP('a' := 1, 'b' := 2), (k, v) => 'c', (k, v) => v)", None),
        ("REDUCE(CAST(NULL AS ARRAY<INTEGER>), 3, (s, x) => s + x)", 3),
        ("FILTER(CAST(NULL AS ARRAY<INTEGER>), x => true)", None),
    ],
)
def test_edges(call, expected):
    assert evaluate(call) == expected


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ([INTEGER, BIGINT], r"is ambiguous for the parameters \(INTEGER, BIGINT\)"),
        ([NULL, NULL], r"ambiguous for the parameters \(null, null\)"),
        ([STRING, INTEGER], r"Function 'greatest' has no signature for the parameters \(STRING, INTEGER\)"),
        ([], r"has no signature for the parameters \(\)"),
    ],
)
def test_calls_that_cannot_be_resolved(kinds, message):
    with pytest.raises(SqlTypeError, match=message):
        scalar_functions().resolve("greatest", kinds)


def test_errors_are_counted_and_the_first_ones_logged(caplog):
    errors = EvaluationErrors("CSAS_1")
    parse = scalar_functions().resolve("PARSE_DATE", [STRING, STRING]).safe(errors)
    assert [parse("x", "yyyy") for _ in range(12)] == [None] * 12
    assert errors.counts == {"PARSE_DATE": 12}
    assert len(caplog.records) == 10
    assert "CSAS_1: in PARSE_DATE" in caplog.records[0].getMessage()
    assert "only counted" in caplog.records[-1].getMessage()


@pytest.mark.parametrize("pattern", ["[a-c&&b]", "[a[b]]", r"\G", r"\p{IsGreek}", "(?u)a", "[a", "(?<=a*)b", "a{2,1}"])
def test_regular_expressions_that_are_refused(pattern):
    with pytest.raises(JavaTextError, match="regular expression"):
        compile_java(pattern)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"\Qa.b\E+", "a.bb"),
        (r"(?<x>a)\k<x>", "aa"),
        (r"[\p{Upper}\d]+\z", "A1"),
        ("(?s).", "\n"),
        ("a++b", "aab"),
        (r"\x{41}", "A"),
        ("(?i)ABC", "abc"),
    ],
)
def test_java_syntax(pattern, text):
    assert compile_java(pattern).fullmatch(text)


def test_dots_leave_out_line_breaks_of_java():
    assert not compile_java(".").fullmatch("\u2028")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd'T'HH:mm:ss.SSSX", "2021-03-04T05:06:07.089Z"),
        ("yyyyMMddHHmmss", "20210304050607"),
        ("EEE, d MMM yyyy hh:mm a Z", "Thu, 4 Mar 2021 05:06 PM +0130"),
        ("dd/MM/yy 'o''clock'", "04/03/21 o'clock"),
        ("yyyy-MM-dd[ HH:mm]", "2021-03-04"),
        ("yyyy-DDD", "2021-063"),
        ("yyyy-MM-dd HH:mm VV", "2021-03-04 05:06 Europe/Paris"),
    ],
)
def test_patterns_of_dates_read_what_they_write(pattern, text):
    compiled = date_pattern(pattern)
    moment = compiled.parse(text)
    assert (moment.year, moment.month, moment.day) == (2021, 3, 4)
    if "[" not in pattern:
        assert compiled.format(moment) == text
