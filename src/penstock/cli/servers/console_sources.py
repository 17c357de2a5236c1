"""Connectors of a worker and a server of SQL for the web console: bounded results, no changes without leave."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.base.escapes import one_line
from penstock.base.masking import without_passwords
from penstock.base.secrets import is_secret, shown
from penstock.connect.worker_client import ConnectClient
from penstock.console.part_interfaces import ConnectorState, SqlResult
from penstock.errors import ConfigError, ConnectError, EnvironmentProblemError, SqlError
from penstock.sql.completion import KnownNames, completions
from penstock.sql.parse import Parsed, parse_script
from penstock.sql.parse import statement_nodes as s
from penstock.sql.parse.statement_nodes import Query
from penstock.sql.parse.tokens import quoted

if TYPE_CHECKING:
    import httpx

__all__ = ["ConnectorsOfWorker", "SqlServerClient"]

_TRACE_CHARACTERS = 4_000


class ConnectorsOfWorker:
    """`penstock.console.part_interfaces.Connectors` over a worker's REST interface.

    Args:
        client: The client of the worker.
    """

    def __init__(self, client: ConnectClient) -> None:
        self._client = client

    @property
    def url(self) -> str:
        """The worker's address."""
        return self._client.url

    def all(self) -> list[ConnectorState]:
        """Return all connectors by name."""
        statuses, experimental = self._client.statuses(), self._client.experimental()
        return [_state(name, statuses[name], experimental) for name in sorted(statuses)]

    def topics(self, name: str) -> list[str]:
        """Return the topics that a connector reads or writes."""
        return sorted(self._client.topics(name))

    def restart(self, name: str, *, only_failed: bool) -> None:
        """Restart a connector with its tasks, or only those that have failed."""
        self._client.restart(name, only_failed=only_failed)

    def pause(self, name: str, *, resume: bool) -> None:
        """Pause a connector, or resume it."""
        (self._client.resume if resume else self._client.pause)(name)

    def configure(self, name: str, config: Mapping[str, str], *, dry_run: bool) -> list[str]:
        """Create a connector, or change its settings; masked ones stay as they are."""
        before = self._client.configs().get(name, {})
        new_config = {key: _setting(key, value, before.get(key)) for key, value in config.items()}
        new_config["name"] = name
        problems = self._client.problems(new_config)
        if problems:
            raise ConnectError("; ".join(problems[:5]), hint="Correct the settings.")
        changes = [
            f"{key}: {shown(key, before.get(key, '-'))} -> {shown(key, new_config.get(key, '-'))}"
            for key in sorted({*before, *new_config})
            if before.get(key) != new_config.get(key)
        ]
        if not dry_run and changes:
            self._client.put_config(name, new_config)
        return changes


def _setting(name: str, text: str, before: str | None) -> str:
    r"""Return the value that a line of a form stands for: what is as it was shown is as it was.

    >>> _setting("query", r"SELECT 1\nFROM t", "SELECT 1\nFROM t"), _setting("url", "ftp://u:***@h", "ftp://u:p@h")
    ('SELECT 1\nFROM t', 'ftp://u:p@h')

    Raises:
        ConfigError: It was changed in part, and the rest is not what it was: stars, or escapes of line ends.
    """
    if before is not None and text == one_line(str(shown(name, before))).strip():
        return before
    if text != before and _is_starred(name, text):
        raise ConfigError(f"{name} has stars where a secret was", hint="Write its whole value, or leave it as it was.")
    if before is not None and one_line(before) != before and "\\" in text:
        raise ConfigError(
            f"{name} has escapes in place of line ends or other characters",
            hint="Write it without them, leave it as it was, or change it with penstock connect apply.",
        )
    return text


def _is_starred(name: str, value: str) -> bool:
    return value == "***" if is_secret(name) else "://" in value and "***" in value


def _state(name: str, connector_status: Any, experimental: frozenset[str]) -> ConnectorState:
    info, status = connector_status.get("info", {}), connector_status.get("status", {})
    own = status.get("connector", {})
    return ConnectorState(
        name,
        str(status.get("type") or info.get("type") or "unknown"),
        str(own.get("state", "UNASSIGNED")),
        str(own.get("worker_id", "")),
        [{**task, "trace": str(task.get("trace", ""))[:_TRACE_CHARACTERS]} for task in status.get("tasks", ())],
        {key: str(shown(key, value)) for key, value in sorted(info.get("config", {}).items())},
        str(own.get("trace", ""))[:_TRACE_CHARACTERS],
        any(each.endswith(_class(info)) for each in experimental) if _class(info) else False,
    )


def _class(info: Any) -> str:
    """Return the end of a class's name by which a config names its connector."""
    return str(info.get("config", {}).get("connector.class") or "")


_DESCRIBES = (s.Show, s.Describe, s.DescribeAll, s.Explain)
_READS = (Query, s.Print, *_DESCRIBES)
_ROWS = 500
_SECONDS = 5.0  # of a query that does not end by itself
_KNOWN_S = 10.0
_DESCRIBED = 50  # streams and tables whose columns are known
_MOST_BYTES = 4 << 20
_HINT = "Does it run? `penstock sql serve` starts one."


class SqlServerClient:
    """`penstock.console.part_interfaces.Statements` over ksqlDB's REST interface.

    Args:
        url: The address of the server, such as ``http://localhost:8088``.
        user: ``name:password``, for servers with basic authentication.

    Raises:
        ConfigError: The URL is none.
    """

    def __init__(self, url: str, user: str | None = None) -> None:
        try:
            import httpx
        except ImportError as error:
            raise EnvironmentProblemError("httpx is not installed", hint='pip install "penstock[query]"') from error
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"{url!r} is not the URL of a server of SQL", hint="For example http://localhost:8088")
        name, colon, password = (user or "").partition(":")
        self._url = without_passwords(url)
        auth = (name, password) if colon else None
        self._client: httpx.Client = httpx.Client(base_url=url.rstrip("/"), auth=auth, timeout=30.0)
        self._known_names = KnownNames()
        self._looked = float("-inf")

    @property
    def url(self) -> str:
        """The server's address."""
        return self._url

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def run(self, text: str, *, writes: bool, records: bool = True) -> list[SqlResult]:
        """Run statements; those that change something are refused unless ``writes``, before any of them runs.

        Without ``records`` only those run that neither show records nor write them under other names: SHOW, DESCRIBE,
        EXPLAIN.
        Queries that do not end by themselves end after 500 rows or five seconds.

        Raises:
            SqlError: A statement is wrong or refused, or the server does not answer.
        """
        script = parse_script(text)
        for parsed in script:
            if not (records or isinstance(parsed.statement, _DESCRIBES)):
                raise SqlError(
                    f"this console hides records, and {parsed.text.split(None, 1)[0].upper()} could show them",
                    hint="SHOW, LIST, DESCRIBE and EXPLAIN run.",
                    status=403,
                )
            if not (writes or isinstance(parsed.statement, _READS)):
                raise SqlError(
                    f"this console only reads, and {parsed.text.split(None, 1)[0].upper()} changes something",
                    hint="It needs --allow-writes; of a console with users, the role admin.",
                )
        return [self._result(parsed) for parsed in script]

    def _result(self, parsed: Parsed) -> SqlResult:
        text = f"{parsed.text.rstrip().rstrip(';')};"
        if isinstance(parsed.statement, Query):
            return self._query(text)
        if isinstance(parsed.statement, s.Print):
            lines, is_cut = self._lines("/query", {"ksql": text})
            return SqlResult(text, (("Record", "STRING"),), [[line] for line in lines], is_cut=is_cut)
        return _of_document(text, self._ask({"ksql": text}))

    def _query(self, text: str) -> SqlResult:
        body = {"sql": text, "properties": {"auto.offset.reset": "earliest"}}
        lines, is_cut = self._lines("/query-stream", body)
        parsed = [json.loads(line) for line in lines]
        wrong = next((each for each in parsed if isinstance(each, dict) and "message" in each), None)
        if wrong is not None:
            raise SqlError(str(wrong["message"]), hint="Correct the query.")
        head = parsed[0] if parsed else {"columnNames": [], "columnTypes": []}
        columns = tuple(zip(head["columnNames"], head["columnTypes"], strict=True))
        return SqlResult(text, columns, parsed[1:], is_cut=is_cut)

    def _lines(self, path: str, body: Mapping[str, Any]) -> tuple[list[str], bool]:
        """Return the lines of an answer, and whether there are more than were read."""
        import httpx

        lines: list[str] = []
        size, deadline = 0, time.monotonic() + _SECONDS
        headers = {"accept": "application/vnd.ksqlapi.delimited.v1"}
        timeout = httpx.Timeout(30.0, read=_SECONDS)
        try:
            with self._client.stream("POST", path, json=body, headers=headers, timeout=timeout) as answer:
                if not answer.is_success:
                    answer.read()
                    raise _refusal(answer)
                for line in answer.iter_lines():
                    if line:
                        lines.append(line)
                    size += len(line)
                    if len(lines) > _ROWS or size > _MOST_BYTES or time.monotonic() > deadline:
                        return lines[: _ROWS + 1], True
        except httpx.ReadTimeout:
            return lines, True
        except httpx.TransportError as error:
            raise self._gone(error) from error
        return lines, False

    def _ask(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        import httpx

        try:
            answer = self._client.post("/ksql", json=body)
        except httpx.TransportError as error:
            raise self._gone(error) from error
        if not answer.is_success:
            raise _refusal(answer)
        document = answer.json()
        return document if isinstance(document, list) else [document]

    def _gone(self, error: Exception) -> SqlError:
        return SqlError(f"the server {self._url} cannot be reached: {error}", hint=_HINT)

    def complete(self, text: str, at: int) -> list[tuple[str, str, int]]:
        """Return what may stand at a place of a text: the word, its kind, and how many characters it replaces."""
        return list(completions(text[:at], text, self._names()))[:40]

    def _names(self) -> KnownNames:
        """Return the names that the server knows, as of the last seconds."""
        if time.monotonic() - self._looked > _KNOWN_S:
            self._looked = time.monotonic()
            listed = self._ask({"ksql": "SHOW STREAMS; SHOW TABLES; SHOW TOPICS; SHOW QUERIES;"})
            kinds = {each["name"]: each for document in listed for each in _rows(document, "streams", "tables")}
            described = "".join(f"DESCRIBE {quoted(name)};" for name in list(kinds)[:_DESCRIBED])
            columns = {
                description["name"]: [
                    (field["name"], field["schema"]["type"]) for field in description.get("fields", ())
                ]
                for document in (self._ask({"ksql": described}) if described else ())
                if (description := document.get("sourceDescription"))
            }
            self._known_names = KnownNames(
                {name: (str(each.get("type", "STREAM")), columns.get(name, ())) for name, each in kinds.items()},
                [each["name"] for document in listed for each in _rows(document, "topics")],
                [each["id"] for document in listed for each in _rows(document, "queries")],
            )
        return self._known_names


def _rows(document: Mapping[str, Any], *names: str) -> list[Any]:
    return [each for name in names for each in document.get(name) or ()]


def _refusal(answer: httpx.Response) -> SqlError:
    try:
        message = str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        message = answer.text[:300] or answer.reason_phrase
    return SqlError(message, hint="Correct the statement.", status=400)


def _of_document(text: str, documents: Sequence[Mapping[str, Any]]) -> SqlResult:
    """Return the answer to a statement as a table where it has a list, else as a message."""
    for document in documents:
        described = document.get("sourceDescription")
        if isinstance(described, Mapping):
            rows = [[field["name"], field["schema"]["type"], field.get("type", "")] for field in described["fields"]]
            columns = (("Field", "STRING"), ("Type", "STRING"), ("Key", "STRING"))
            return SqlResult(text, columns, rows, str(described.get("statement", "")))
        for value in document.values():
            if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
                names = list(dict.fromkeys(name for each in value for name in each))
                return SqlResult(
                    text,
                    tuple((name, "STRING") for name in names),
                    [[each.get(name) for name in names] for each in value],
                )
        status = document.get("commandStatus")
        if isinstance(status, Mapping):
            return SqlResult(text, message=str(status.get("message", "done")))
        for name in ("executionPlan", "queryDescription"):
            if name in document:
                query_facts = document[name]
                topology = str(query_facts.get("topology", "")) if isinstance(query_facts, Mapping) else ""
                return SqlResult(text, message=json.dumps(query_facts, indent=2), topology=topology)
    empty = next((f"no {name}" for each in documents for name, value in each.items() if value == []), "done")
    return SqlResult(text, message=empty)
