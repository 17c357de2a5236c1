"""Reads and writes golden files: blocks of an input and what must come of it.

``python tests/sql/parse/goldens.py`` writes the second half of each block anew; look at the difference before it is committed.
"""

from pathlib import Path

from penstock.errors import SqlSyntaxError
from penstock.sql.parse import format_statement, parse_statement

__all__ = ["MALFORMED", "STATEMENTS", "blocks", "canonical", "refusal"]

STATEMENTS = Path(__file__).parent / "statements.txt"
MALFORMED = Path(__file__).parent / "malformed.txt"
BETWEEN = "\n----\n"
AFTER = "\n====\n"


def blocks(path):
    """The pairs of a file."""
    for block in path.read_text().split(AFTER):
        if block.strip():
            given, _, expected = block.partition(BETWEEN)
            yield given, expected


def canonical(text):
    """A statement as it is formatted."""
    return f"{format_statement(parse_statement(text, tests=True))};"


def refusal(text):
    """The message with which a statement is refused."""
    try:
        parse_statement(text)
    except SqlSyntaxError as error:
        return str(error)
    return "nothing is wrong"


def main():
    """Write both files anew."""
    for path, made in ((STATEMENTS, canonical), (MALFORMED, refusal)):
        path.write_text("".join(f"{given}{BETWEEN}{made(given)}{AFTER}" for given, _ in list(blocks(path))))


if __name__ == "__main__":
    main()
