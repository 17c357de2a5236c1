"""Random trees of expressions and types, as the parser could make them."""

from hypothesis import strategies as st

from penstock.sql.parse import expression_nodes as x

__all__ = ["expressions", "names", "types"]

WORDS = [
    "ID",
    "id",
    "a b",
    "SELECT",
    "ARRAY",
    "MAP",
    "STRUCT",
    "CASE",
    "KEY",
    "1A",
    "`",
    '"',
    "é",
    "NOT",
    "EMIT",
    "ROWTIME",
    "$X",
]
names = st.one_of(st.sampled_from(WORDS), st.text(min_size=1, max_size=5))
digits = st.text("0123456789", min_size=1, max_size=6)
signs = st.sampled_from(["", "-"])
parameters = st.lists(st.one_of(st.integers(0, 99), st.just("STRING")), max_size=2).map(tuple)


def more_types(inner):
    fields = st.builds(x.FieldType, names, inner)
    return st.one_of(
        st.builds(x.ArrayTypeNode, inner),
        st.builds(x.MapTypeNode, inner, inner),
        st.builds(x.StructTypeNode, st.lists(fields, max_size=3).map(tuple)),
    )


types = st.recursive(st.builds(x.NamedType, names, parameters), more_types, max_leaves=6)
literals = st.one_of(
    st.just(x.NullLiteral()),
    st.builds(x.BooleanLiteral, st.booleans()),
    st.builds(x.IntegerLiteral, st.integers(-(2**63), 2**63 - 1)),
    st.builds(x.DecimalLiteral, st.builds("{}{}.{}".format, signs, digits, digits)),
    st.builds(x.DoubleLiteral, st.builds("{}{}E{}".format, signs, digits, st.integers(-30, 30))),
    st.builds(x.StringLiteral, st.text(max_size=6)),
)
columns = st.builds(x.ColumnNode, names, st.one_of(st.none(), names))


def several(of, least=0):
    return st.lists(of, min_size=least, max_size=3).map(tuple)


def more(inner):
    lambdas = st.builds(x.LambdaNode, several(names, 1), inner)
    whens = st.builds(x.When, inner, inner)
    comparisons = ["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]
    # The parser makes a signed number of a sign before a number in no brackets, and the formatter writes brackets.
    return st.one_of(
        st.builds(x.Subscript, inner, inner),
        st.builds(x.FieldAccess, inner, names),
        st.builds(x.CallNode, names, several(st.one_of(inner, lambdas, st.just(x.Star())))),
        st.builds(x.ArrayLiteral, several(inner)),
        st.builds(x.MapLiteral, several(st.builds(x.EntryNode, inner, inner))),
        st.builds(x.StructLiteral, several(st.builds(x.FieldValue, names, inner))),
        st.builds(x.CastNode, inner, types),
        st.builds(x.CaseNode, several(whens, 1), st.one_of(st.none(), inner)),
        st.builds(x.Unary, st.sampled_from("+-"), inner),
        st.builds(x.ArithmeticNode, st.sampled_from(["+", "-", "*", "/", "%", "||"]), inner, inner),
        st.builds(x.ComparisonNode, st.sampled_from(comparisons), inner, inner),
        st.builds(x.BetweenNode, inner, inner, inner, st.booleans()),
        st.builds(x.InNode, inner, several(inner, 1), st.booleans()),
        st.builds(x.LikeNode, inner, inner, st.one_of(st.none(), st.characters()), st.booleans()),
        st.builds(x.IsNullNode, inner, st.booleans()),
        st.builds(x.NotNode, inner),
        st.builds(x.LogicalNode, st.sampled_from(["AND", "OR"]), several(inner, 2)),
    )


expressions = st.recursive(st.one_of(literals, columns), more, max_leaves=12)
