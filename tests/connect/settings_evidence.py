"""Where a setting is shown to be obeyed: a test that sets it, or a recorded case of Kafka Connect that does."""

import ast
import json
import re
from functools import cache
from pathlib import Path

from connect_cases import ARCHIVE, load_cases
from connect_debezium import load_debezium_cases

__all__ = ["proving_tests", "recorded", "recorded_by_debezium"]

HERE = Path(__file__).parent


@cache
def _tests():
    """All tests of this folder: file, name, and text; helpers of a file stand for the tests that may call them."""
    found = []
    for file in sorted(HERE.glob("test_*.py")):
        lines = file.read_text().split("\n")
        tree = ast.parse("\n".join(lines))
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}

        def text_of(node, lines=lines):
            first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
            return "\n".join(lines[first - 1 : node.end_lineno])

        for name, node in functions.items():
            if not name.startswith("test_"):
                continue
            text, seen = text_of(node), {name}
            while new := [each for each in functions if each not in seen and re.search(rf"\b{each}\b", text)]:
                for each in new:
                    seen.add(each)
                    text += "\n" + text_of(functions[each])
            found.append((file.name, name, text))
    return tuple(found)


@cache
def proving_tests(setting):
    """The tests, as ``file::name``, that set a setting: by its name, or by a keyword that stands for it."""
    keyword = setting.replace(".", "_")
    pattern = re.compile(
        rf"""["'](?:[\w.-]+\.)?{re.escape(setting)}["'=]|\b{re.escape(setting)}=|["']{keyword}["']|\b{keyword}="""
    )
    return [
        f"{file}::{name}"
        for file, name, text in _tests()
        if (setting in text or keyword in text) and pattern.search(text)  # the pattern alone takes twenty times as long
    ]


@cache
def _recorded():
    return tuple((case["name"], json.dumps(case)) for case in load_cases(ARCHIVE, None))


@cache
def recorded(setting):
    """The recorded cases that set a setting."""
    pattern = re.compile(rf'"(?:[\w.-]+\.)?{re.escape(setting)}(?:": |=)')
    return [name for name, text in _recorded() if setting in text and pattern.search(text)]


@cache
def _debezium_settings():
    return frozenset(name for case in load_debezium_cases() for name in case["connector"])


def recorded_by_debezium(setting):
    """Whether a recorded case of Debezium sets a setting, of the connector or of a transformation."""
    return any(
        name == setting or re.fullmatch(rf"transforms\.\w+\.{re.escape(setting)}", name)
        for name in _debezium_settings()
    )
