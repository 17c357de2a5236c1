"""Runs the recorded cases of transforms and converters; each gives the differences that were found, none if it passes."""

import base64
import json
import re
from decimal import Decimal

from connect_compare import same_record, same_value
from connect_forms import read_record, read_schema, read_value, write_record, write_schema, write_value
from penstock.connect.converters import CONVERTERS
from penstock.connect.data import java_name
from penstock.connect.plugins import transformation_chain
from penstock.connect.predicates import PREDICATES
from penstock.connect.transforms import TRANSFORMS, SidedTransformation

CLASSES = {plugin.java_class: plugin for plugin in (*CONVERTERS, *TRANSFORMS, *PREDICATES)}
JAVA_CLASS = re.compile(r"(?:class )?(?:\[B|(?:java|org\.apache)\.[\w.$]*[A-Z][\w$]*)(?:@[0-9A-Fa-fxH]+\w*)?")


def run_case(case):
    """The differences between a case and what happens here."""
    return run_converter(case) if case["kind"] == "converter" else run_transform(case)


def attempt(call):
    """What a call gives, or raises."""
    try:
        return call(), None
    except Exception as error:  # noqa: BLE001 - which errors are right is what the cases say
        return None, error


def error_differences(expected, error):
    """An error where one is expected, of Kafka's class and text if it is Kafka's own."""
    if expected is None:
        return [] if error is None else [f"unexpected {type(error).__name__}: {error}"]
    if error is None:
        return [f"no error, but expected {expected['class']}: {expected['message']}"]
    if not expected["class"].startswith("org.apache.kafka"):
        return []
    found = []
    if java_name(error) != expected["class"]:
        found.append(f"{java_name(error)} ({error}) in place of {expected['class']} ({expected['message']})")
    want, got = comparable(expected["message"]), comparable(getattr(error, "message", str(error)))
    if want != got and not is_javas_own(expected["message"]):
        found.append(f"message {got!r} in place of {want!r}")
    return found


def comparable(message):
    return JAVA_CLASS.sub("<class>", message or "")


def is_javas_own(message):
    """Texts of Java's libraries inside of Kafka's messages."""
    return any(text in message for text in ("No enum constant", "com.fasterxml", "InsertionSpec@", "Cannot invoke"))


def run_transform(case):
    plugin, error = attempt(lambda: configured(case))
    found = error_differences(case.get("configure_error"), error)
    if found or error is not None:
        return found
    for number, step in enumerate(case["steps"]):
        record = read_record(step["in"])
        before = write_record(record)
        if "test" in step or case.get("class", "").startswith("org.apache.kafka.connect.transforms.predicates"):
            got, error = attempt(lambda: plugin.test(record))  # noqa: B023 - called at once
        else:
            got, error = attempt(lambda: plugin.apply(record))  # noqa: B023
        problems = error_differences(step.get("error"), error)
        if not problems and "test" in step and got is not step["test"]:
            problems = [f"{got} in place of {step['test']}"]
        elif not problems and "out" in step and not same_record(step["out"], write_record(got)):
            problems = [f"{json.dumps(write_record(got))} in place of {json.dumps(step['out'])}"]
        if not problems and not same_record(before, write_record(record)):
            problems = ["the record that went in was changed"]
        if not problems and isinstance(plugin, SidedTransformation):
            problems = columns_differ(plugin, record, got, error)
        found += [f"step {number}: {problem}" for problem in problems]
    return found


def columns_differ(plugin, record, got, error):
    """What a transformation of whole columns makes otherwise than that of single records."""
    made, failed = attempt(lambda: plugin.all_updated(plugin.schema_of(record), [plugin.value_of(record)] * 2))
    if made is None:
        return [] if failed is None or error is not None else [f"columns: {type(failed).__name__}: {failed}"]
    if error is not None or (plugin.schema_of(got), [plugin.value_of(got)] * 2) != made:
        return [f"columns: {made} in place of {got} or {error}"]
    return []


def configured(case):
    if case.get("chain"):
        return transformation_chain(case["config"])
    plugin = CLASSES[case["class"]]()
    plugin.configure(case["config"])
    return plugin


def run_converter(case):
    converter = CLASSES[case["class"]]()
    _, error = attempt(lambda: converter.configure(case["config"], case["role"]))
    found = error_differences(case.get("configure_error"), error)
    if found or error is not None:
        return found
    for number, step in enumerate(case["steps"]):
        problems = read_step(converter, step) if "to_connect" in step else write_step(converter, step)
        found += [f"step {number}: {problem}" for problem in problems]
    return found


def read_step(converter, step):
    data = read_bytes(step["to_connect"])
    got, error = attempt(lambda: converter.to_connect("topic", data))
    many, failed = attempt(lambda: converter.all_to_connect("topic", [data, data]))
    problems = error_differences(step.get("error"), error)
    if (
        not problems
        and failed is None
        and many is not None
        and (error or repr(many) != repr((got.schema, [got.value] * 2)))
    ):
        problems = [f"columns: {many} in place of {got} or {error}"]
    if problems or error is not None:
        return problems
    form = {"schema": write_schema(got.schema), "value": write_value(got.value, got.schema)}
    return [] if same_value(step["out"], form) else [f"{shown(form)} in place of {json.dumps(step['out'])}"]


def shown(form):
    """A form as JSON; as Python writes it where keys of a map are none of JSON's."""
    try:
        return json.dumps(form)
    except TypeError:
        return repr(form)


def write_step(converter, step):
    schema = read_schema(step["from_connect"]["schema"])
    value = read_value(step["from_connect"]["value"], schema)
    got, error = attempt(lambda: converter.from_connect("topic", schema, value))
    many, _ = attempt(lambda: converter.all_from_connect("topic", schema, [value, value]))
    problems = error_differences(step.get("error"), error)
    if not problems and many is not None and (error or many != [got, got]) and "[B@" not in str(got):
        problems = [f"columns: {many} in place of {got} or {error}"]
    if problems or error is not None:
        return problems
    want = step["out"]
    if want == {"any": True}:
        return [] if got else ["no bytes in place of some"]
    expected = read_bytes(want)
    if got == expected:
        return []
    if None not in (got, expected) and converter.java_class.endswith("JsonConverter") and same_json(got, expected):
        return []
    return [f"{got!r} in place of {expected!r}"]


def same_json(one, other):
    return same_value(json.loads(one, parse_float=Decimal), json.loads(other, parse_float=Decimal))


def read_bytes(form):
    if form is None:
        return None
    return form["text"].encode("utf-8", "surrogatepass") if "text" in form else base64.b64decode(form["base64"])
