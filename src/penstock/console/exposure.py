"""What of records may be shown: the one place that every way out of a console asks.

`Exposure` is made of what the operator has set: whether messages are shown at all, and the paths of fields that are
hidden. Pages, the JSON interface, events, downloads, stores, alerts and webhooks show what it returns and nothing else.

Fields are hidden by construction. What has hidden fields is parsed, the fields are taken out, and what is left is
shown; what cannot be parsed into fields is withheld whole, in whatever format a visitor asks for. Filters see what is
shown. Texts of errors may quote a record, so with anything hidden an error is its class, its node and its place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from penstock.base.json_depth import MOST_DEPTH, depth_of
from penstock.base.terminal.human_numbers import with_article
from penstock.console.filtering import Path, parse_path
from penstock.console.part_interfaces import ConnectorState
from penstock.errors import ConfigError, PenstockError, ProcessingError, SerializationError
from penstock.serde.plain_json import plain, text_of
from penstock.serde.windowed import Windowed

__all__ = ["EVERYTHING", "HIDDEN", "LETTER_HEADERS", "Exposure", "exposure_of", "facts_of", "place_of"]

HIDDEN = "(hidden)"
_ROOTS = ("key", "value", "header")
_UNREADABLE = "its fields cannot be read, so all of it is hidden"
_WHOLE_LOG = "The application's log has the whole error."
LETTER_HEADERS = ("__streams.errors.", "__connect.errors.")  # how the names of a dead letter's headers begin
# Of the headers of a dead letter, those that cannot quote a record.
_SAFE_IN_LETTERS = re.compile(
    r"topic|partition|offset|timestamp|exception|exception\.class\.name|connector\.name|task\.id|stage|class\.name"
    r"|processor\.node\.id"
)
_MOST_OF_A_FACT = 500  # characters
_MOST_POSITIONS = 50
_WINDOW = {"key", "start", "end"}  # how a windowed key is written in JSON
_KINDS = re.compile(r"^(?:Caused by: )?([A-Za-z_][\w.$]*(?:Error|Exception))(?=:|$)", re.MULTILINE)
_CLASS = re.compile(r"[A-Za-z_][\w.]*(?=:)")


@dataclass(frozen=True, slots=True)
class Exposure:
    """The parts of records that may be shown.

    Attributes:
        messages: Whether keys and values of records are shown at all.
        masks: The places that are hidden.

    >>> exposure = Exposure.of(masked=["value.card"])
    >>> exposure.fields("value", '{"card": "4111", "user": "ann"}')
    {'card': '(hidden)', 'user': 'ann'}
    >>> exposure.fields("value", "card=4111"), exposure.fields("key", "k1")
    ('(hidden)', 'k1')
    """

    messages: bool = True
    masks: tuple[Path, ...] = ()

    @classmethod
    def of(cls, *, messages: bool = True, masked: Sequence[str] = ()) -> Exposure:
        """Return the exposure with these paths hidden: ``value.card``, ``value.items[0].name``, ``header.auth``.

        Raises:
            ConfigError: A path is none.
        """
        return exposure_of(messages, tuple(masked))

    @property
    def is_limited(self) -> bool:
        """Whether anything is hidden."""
        return not self.messages or bool(self.masks)

    def hides(self, root: str) -> bool:
        """Return whether something of the keys, values or headers is hidden."""
        return not self.messages or any(mask.root == root for mask in self.masks)

    # Records

    def decoded(self, root: str, serde: Any, data: bytes | None) -> tuple[Any, str]:
        """Decode a key or value; return what is shown of it, and what is wrong with it.

        Args:
            root: "key" or "value".
            serde: The serde that the visitor has asked for, or that is noted.
            data: The bytes.
        """
        if data is None:
            return None, ""
        if self.hides(root):
            return self._hidden(root, serde, data)
        try:
            return plain(serde.deserialize(data)), ""
        except (SerializationError, ValueError) as error:
            return plain(data), f"not {with_article(serde.name)}: {self.text_of(error)}"[:300]

    def _hidden(self, root: str, serde: Any, data: bytes) -> tuple[Any, str]:
        if not self.messages or any(mask.root == root and not mask.steps for mask in self.masks):
            return HIDDEN, ""
        try:
            value = serde.deserialize(data)
        except Exception:  # noqa: BLE001 - whatever a serde raises, its text may quote the data
            value = data
        shown = self.fields(root, value)
        return shown, _UNREADABLE if shown == HIDDEN else ""

    def fields(self, root: str, value: Any) -> Any:
        """Return what is shown of a key or value that is decoded: in JSON's types, without the hidden fields.

        Args:
            root: "key" or "value".
            value: The value; of text and bytes the fields of the JSON that they hold.
        """
        if not self.messages:
            return None if value is None else HIDDEN
        shown = value
        for mask in self.masks:
            if mask.root == root:
                shown = _without(_parsed(shown), mask.steps, is_key=root == "key")
        return plain(shown)

    def headers(self, headers: Sequence[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
        """Return the headers of a message that are shown, the values of hidden ones replaced."""
        if not self.is_limited:
            return list(headers)
        named = {str(mask.steps[0]) if mask.steps else "" for mask in self.masks if mask.root == "header"}
        every = not self.messages or "" in named
        return [
            (name, HIDDEN.encode() if value is not None and (every or name in named or _quotes(name)) else value)
            for name, value in headers
        ]

    def require_messages(self) -> None:
        """Raise PenstockError (403) unless messages are shown."""
        if not self.messages:
            hint = "It was started with --no-messages, or the application with penstock.console.messages=false."
            raise PenstockError("this console shows no messages", hint=hint, status=403)

    def require_bytes(self, root: str) -> None:
        """Raise PenstockError (403) unless the bytes of keys or values may leave as they are."""
        self.require_messages()
        if self.hides(root):
            raise PenstockError(
                f"fields of the {root} are hidden, so its bytes are too", hint="See --mask.", status=403
            )

    # Errors

    def text_of(self, error: BaseException) -> str:
        """Return the text of an error that may quote a record; only its class where something is hidden."""
        if self.is_limited:
            return type(error).__name__
        return str(getattr(error, "message", error))

    def error(self, error: PenstockError) -> PenstockError:
        """Return an error as it is shown: those about records without their text, where something is hidden."""
        if not self.is_limited or not isinstance(error, SerializationError | ProcessingError):
            return error
        return PenstockError(f"{place_of(error)}; its text may quote a record, and is hidden", hint=_WHOLE_LOG)

    def failure(self, error: PenstockError) -> list[str]:
        """Return what is said of the error that has ended an application, and its hint."""
        return [place_of(error), _WHOLE_LOG] if self.is_limited else [_whole(error), error.hint]

    def reason(self, text: str) -> str:
        """Return the reason of a drop: of an error only its class, where something is hidden."""
        error_class = _CLASS.match(text) if self.is_limited else None
        return text if error_class is None else error_class[0]

    def trace(self, text: str) -> str:
        """Return why a connector or task has failed: only the classes of errors, where something is hidden."""
        if not self.is_limited or not text:
            return text
        shown = ", caused by ".join(dict.fromkeys(_KINDS.findall(text)))
        return f"{shown or 'an error'} (its text may quote a record, and is hidden; the worker's log has it)"

    def connector(self, state: ConnectorState) -> ConnectorState:
        """Return a connector as it is shown: traces of its errors may quote a record."""
        if not self.is_limited:
            return state
        tasks = [
            {**task, **({"trace": self.trace(str(task["trace"]))} if task.get("trace") else {})} for task in state.tasks
        ]
        return replace(state, tasks=tasks, trace=self.trace(state.trace))

    def document(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the figures of an application as they are shown."""
        if not self.is_limited:
            return dict(document)
        shown = dict(document)
        shown["reasons"] = [[row[0], self.reason(str(row[1])), *row[2:]] for row in document.get("reasons", ())]
        shown["errors"] = [
            {**row, "examples": [{**each, "said": ""} for each in row.get("examples", ())]}
            for row in document.get("errors", ())
        ]
        if document.get("failure"):
            safe = document.get("failure_place") or "the application ended with an error"
            shown["failure"] = [safe, _WHOLE_LOG]
        shown["alerts"] = [self.alert(each, shown) for each in document.get("alerts", ())]
        return shown

    def alert(self, alert: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
        """Return an alert as it is shown: texts of errors come from a document that has none."""
        if self.is_limited and alert.get("name") == "failed":
            what, do = document.get("failure") or ("the application ended with an error", _WHOLE_LOG)
            return {**alert, "what": what, "do": do}
        if self.is_limited and alert.get("name") == "drops":
            before, mostly, reason = str(alert.get("what", "")).partition(", mostly: ")
            return {**alert, "what": before + mostly + self.reason(reason)}
        return dict(alert)


@lru_cache(maxsize=64)
def exposure_of(messages: bool, masked: tuple[str, ...]) -> Exposure:  # noqa: FBT001 - the key of the cache
    """Return an exposure; see `Exposure.of`."""
    masks = tuple(map(parse_path, masked))
    for text, mask in zip(masked, masks, strict=True):
        if mask.root not in _ROOTS or (mask.root == "header" and len(mask.steps) > 1):
            raise ConfigError(
                f"{text[:100]!r} is not a field of messages",
                hint="A field begins with key, value or header: value.card, value.items[0].name, header.authorization.",
            )
    return Exposure(messages, masks)


EVERYTHING = Exposure()


def place_of(error: PenstockError) -> str:
    """Return the class, node and place of an error, without its text.

    >>> place_of(ProcessingError("m", node="MAP", kind="ValueError", function="f", file="a.py", line=3,
    ...                           topic="in", partition=0, offset=7))
    'ValueError in MAP: f (a.py:3), for the record in-0 offset 7'
    """
    facts = error.facts
    text = str(facts.get("kind") or type(error).__name__)
    if facts.get("node"):
        text += f" in {facts['node']}"
    if facts.get("function"):
        text += f": {facts['function']} ({facts.get('file')}:{facts.get('line')})"
    if facts.get("topic") and facts.get("offset") is not None:
        text += f", for the record {facts['topic']}-{facts.get('partition')} offset {facts['offset']}"
    return text


def facts_of(error: PenstockError) -> dict[str, Any]:
    """Return what is known of the record and the code that have ended an application; no text of the error.

    >>> facts = facts_of(ProcessingError("m", node="MAP", kind="ValueError", function="f", file="a.py", line=3,
    ...     raised=["check", "b.py", 9], task="0_1", topic="in", partition=1, offset=7))
    >>> facts["record"], facts["function"], facts["line"], facts["defined"]
    (['in', 1, 7], 'check', 9, 'f (a.py:3)')
    """
    facts = error.facts
    own = [str(facts.get("function") or ""), str(facts.get("file") or ""), _number(facts.get("line"), 0)]
    raised = facts.get("raised")
    code = list(raised) if isinstance(raised, list | tuple) and len(raised) == 3 and raised[1] else own
    record = facts.get("source") or [facts.get(name) for name in ("topic", "partition", "offset")]
    positions = facts.get("positions")
    return {
        "kind": _cut(facts.get("kind") or type(error).__name__),
        "node": _cut(facts.get("node")),
        "task": _cut(facts.get("task")),
        "batch": facts["batch"] if isinstance(facts.get("batch"), int) else None,
        "function": _cut(code[0]),
        "file": _cut(code[1]),
        "line": _number(code[2], 0),
        "defined": _cut(f"{own[0]} ({own[1]}:{own[2]})") if own[1] and own != code else "",
        "record": _record(record),
        "positions": {_cut(name): _number(at, 0) for name, at in list(positions.items())[:_MOST_POSITIONS]}
        if isinstance(positions, Mapping)
        else {},
    }


def _record(record: Any) -> list[Any] | None:
    """Return topic, partition and offset; None if they are not known."""
    if not isinstance(record, list | tuple) or len(record) != 3 or not record[0]:
        return None
    partition, offset = _number(record[1], -1), _number(record[2], -1)
    return None if partition < 0 or offset < 0 else [_cut(record[0]), partition, offset]


def _number(value: Any, default: int) -> int:
    return value if isinstance(value, int) else default


def _cut(value: Any) -> str:
    return "" if value is None else str(value)[:_MOST_OF_A_FACT]


def _whole(error: PenstockError) -> str:
    """Return what is said of an error: its message, but not the record in it."""
    return error.message.partition(", for the record ")[0]


def _quotes(header: str) -> bool:
    """Return whether a header is one of a dead letter that may quote the record."""
    prefix = next((each for each in LETTER_HEADERS if header.startswith(each)), None)
    return prefix is not None and _SAFE_IN_LETTERS.fullmatch(header.removeprefix(prefix)) is None


def _parsed(value: Any) -> Any:
    """Return a value with fields where it is the text of some; else as it is."""
    if isinstance(value, Windowed):
        return {"key": value.key, "start": value.window.start, "end": value.window.end}
    if isinstance(value, str | bytes):
        data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        try:
            parsed = json.loads(data) if depth_of(data) <= MOST_DEPTH else None
        except (ValueError, RecursionError):
            return value
        return parsed if isinstance(parsed, dict | list) else value
    return value


def _without(value: Any, steps: tuple[str | int, ...], *, is_key: bool) -> Any:
    """Return a value without what is at a path; what has no fields is withheld whole."""
    if is_key and isinstance(value, Mapping) and set(value) == _WINDOW:
        return {**value, "key": _taken(_parsed(value["key"]), steps)}  # paths are those of the key in its window
    return _taken(value, steps)


def _name(key: Any) -> str:
    return text_of(key) if isinstance(key, bytes) else str(key)


def _taken(value: Any, steps: tuple[str | int, ...]) -> Any:
    if value is None:
        return None
    if not steps:
        return HIDDEN
    if isinstance(value, Mapping) and isinstance(steps[0], str) and set(value) != {"base64"}:
        fields = dict(value)
        for number in range(1, len(steps) + 1):  # a name may have dots in it
            name = ".".join(map(str, steps[:number]))
            for key in [key for key in fields if key == name or _name(key) == name]:
                fields[key] = _taken(fields[key], steps[number:])
        return fields
    if isinstance(value, list | tuple):
        if isinstance(steps[0], str):
            return [_taken(each, steps) for each in value]
        return [_taken(each, steps[1:]) if at == steps[0] else each for at, each in enumerate(value)]
    return HIDDEN
