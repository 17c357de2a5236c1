"""The endpoints of connectors, their tasks, topics and offsets."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import Any
from urllib.parse import quote

from penstock.connect.rest.json_bodies import RestAnswer, RestCall, config_of, fields_of, json_of, text_of
from penstock.connect.storage.config_store import RestartRequest
from penstock.connect.worker.request_errors import RequestError
from penstock.connect.worker.worker import Worker

__all__ = ["SIGNATURE", "SIGNATURE_ALGORITHM", "ConnectorEndpoints", "location_of", "signature"]

SIGNATURE, SIGNATURE_ALGORITHM = "x-connect-authorization", "x-connect-request-signature-algorithm"
_HMAC, _ALGORITHM = re.compile("Hmac(MD5|SHA(1|224|256|384|512))", re.IGNORECASE), "HmacSHA256"
_OTHER_ALGORITHM = (
    "This worker does not support the '{}' key signing algorithm used by other workers. This worker is currently "
    "configured to use: [{}]. Check that all workers' configuration files permit the same set of signature algorithms, "
    "and correct any misconfigured worker and restart it."
)
_KEPT = "/;:@&=+$,-_.!~*'()%"
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_STATES = {"RUNNING": "STARTED", "PAUSED": "PAUSED", "STOPPED": "STOPPED"}
_JAVA_BLANKS = "".join(chr(code) for code in range(33))


def location_of(name: str) -> str:
    """Return the path of a connector, as the header Location has it.

    >>> location_of("with space?"), location_of("100%")
    ('/connectors/with%20space%3F', '/connectors/100%25')
    """
    return f"/connectors/{quote(_BARE_PERCENT.sub('%25', name), safe=_KEPT)}"


def signature(key: bytes, body: bytes) -> str:
    """Return the signature of an internal request."""
    return base64.b64encode(hmac.new(key, body, hashlib.sha256).digest()).decode()


class ConnectorEndpoints:
    """The endpoints below ``/connectors``."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._operations = worker.operations

    def listing(self, call: RestCall) -> RestAnswer:
        """Return all connectors: their names, or what ``expand`` asks for."""
        names = self._operations.connectors()
        if "expand" not in call.query:
            return RestAnswer(body=names)
        parts = [part for part in ("status", "info") if part in call.query["expand"].split("\0")]
        looks = {"status": self._operations.status, "info": self._operations.info}
        by_name: dict[str, Any] = {}
        for name in names:
            try:
                by_name[name] = {part: looks[part](name) for part in parts}
            except RequestError:
                continue  # deleted in between
        return RestAnswer(body=by_name)

    def create(self, call: RestCall) -> RestAnswer:
        """Create a connector."""
        document = json_of(call.body)
        if document is None:
            raise RequestError(500, "The request has no body")
        fields = fields_of(document, ("name", "config", "initial_state"), "a connector")
        name = (text_of("name", fields.get("name")) or "").strip(_JAVA_BLANKS)
        state = text_of("initial_state", fields.get("initial_state"))
        if state is not None and state.upper() not in _STATES:
            raise RequestError(500, f"No enum constant of the initial state {state}: it is one of {', '.join(_STATES)}")
        if fields.get("config") is None:
            raise RequestError(500, "The request has no config")
        config = config_of(fields["config"])
        _check_name(name, config)
        body = self._operations.create(name, config, None if state is None else _STATES[state.upper()])
        return RestAnswer(201, body, {"location": location_of(name)})

    def info(self, call: RestCall) -> RestAnswer:
        """Return a connector."""
        return RestAnswer(body=self._operations.info(call.names["connector"]))

    def config(self, call: RestCall) -> RestAnswer:
        """Return a connector's config."""
        return RestAnswer(body=self._operations.config(call.names["connector"]))

    def put_config(self, call: RestCall) -> RestAnswer:
        """Create a connector, or replace its config."""
        name, config = call.names["connector"], config_of(json_of(call.body))
        _check_name(name, config)
        created, body = self._operations.put_config(name, config)
        return RestAnswer(201, body, {"location": location_of(name)}) if created else RestAnswer(body=body)

    def patch_config(self, call: RestCall) -> RestAnswer:
        """Change some settings of a connector."""
        name, document = call.names["connector"], json_of(call.body)
        if document is None:
            self._operations.config(name)  # that it is not there goes first
        return RestAnswer(body=self._operations.patch_config(name, config_of(document)))

    def delete(self, call: RestCall) -> RestAnswer:
        """Delete a connector."""
        self._operations.delete(call.names["connector"])
        return RestAnswer.empty(204)

    def status(self, call: RestCall) -> RestAnswer:
        """Return the states of a connector and its tasks."""
        return RestAnswer(body=self._operations.status(call.names["connector"]))

    def restart(self, call: RestCall) -> RestAnswer:
        """Restart a connector, or also its tasks."""
        request = RestartRequest(call.names["connector"], call.flag("onlyFailed"), call.flag("includeTasks"))
        body = self._operations.restart(request)
        return RestAnswer.empty(204) if body is None else RestAnswer(202, body)

    def pause(self, call: RestCall) -> RestAnswer:
        """Pause a connector."""
        self._operations.set_target(call.names["connector"], "PAUSED")
        return RestAnswer.empty(202)

    def resume(self, call: RestCall) -> RestAnswer:
        """Resume a connector."""
        self._operations.set_target(call.names["connector"], "STARTED")
        return RestAnswer.empty(202)

    def stop(self, call: RestCall) -> RestAnswer:
        """Stop a connector and all of its tasks."""
        self._operations.set_target(call.names["connector"], "STOPPED")
        return RestAnswer.empty(204)

    def tasks(self, call: RestCall) -> RestAnswer:
        """Return a connector's tasks with their configs."""
        return RestAnswer(body=self._operations.tasks(call.names["connector"]))

    def task_status(self, call: RestCall) -> RestAnswer:
        """Return the state of a task."""
        return RestAnswer(body=self._operations.task_status((call.names["connector"], call.number("task"))))

    def restart_task(self, call: RestCall) -> RestAnswer:
        """Restart a task."""
        self._operations.restart_task((call.names["connector"], call.number("task")))
        return RestAnswer.empty(204)

    def topics(self, call: RestCall) -> RestAnswer:
        """Return the topics that a connector uses."""
        return RestAnswer(body=self._operations.topics(call.names["connector"]))

    def reset_topics(self, call: RestCall) -> RestAnswer:
        """Forget the topics that a connector has used."""
        self._operations.reset_topics(call.names["connector"])
        return RestAnswer.empty(202)

    # Offsets

    def offsets(self, call: RestCall) -> RestAnswer:
        """Return a connector's offsets."""
        return RestAnswer(body=self._worker.offsets.offsets(call.names["connector"]))

    def alter_offsets(self, call: RestCall) -> RestAnswer:
        """Set offsets of a connector."""
        document = json_of(call.body)
        if document is None:
            raise RequestError(500, "The request has no body")
        offsets = fields_of(document, ("offsets",), "offsets").get("offsets")
        if offsets is not None and not isinstance(offsets, list):
            raise RequestError(500, "Cannot deserialize offsets from an object")
        pairs = []
        for each in offsets or ():
            fields = fields_of(each, ("partition", "offset"), "an offset")
            pair = tuple(fields.get(name) for name in ("partition", "offset"))
            if any(part is not None and not isinstance(part, dict) for part in pair):
                raise RequestError(500, "Cannot deserialize a partition or an offset: each is an object")
            pairs.append((pair[0], pair[1]))
        if not pairs:
            raise RequestError(400, "Partitions / offsets need to be provided for an alter offsets request")
        return RestAnswer(body=self._worker.offsets.alter(call.names["connector"], pairs))

    def reset_offsets(self, call: RestCall) -> RestAnswer:
        """Delete all offsets of a connector."""
        return RestAnswer(body=self._worker.offsets.reset(call.names["connector"]))

    # Between workers

    def put_tasks(self, call: RestCall) -> RestAnswer:
        """Store the configs of a connector's tasks."""
        document = json_of(call.body)
        if not isinstance(document, list):
            raise RequestError(500, "Cannot deserialize configs of tasks: they are an array")
        texts = [each if each is None else config_of(each) for each in document]
        self._check_signature(call, "externally setting task configurations")
        configs = [{name: value for name, value in config_of(each).items() if value is not None} for each in texts]
        self._operations.put_tasks(call.names["connector"], configs)
        return RestAnswer.empty(204)

    def fence(self, call: RestCall) -> RestAnswer:
        """Fence earlier runs of a connector's tasks."""
        self._check_signature(call, "exactly-once source connectors")
        self._operations.put_fencing(call.names["connector"])
        return RestAnswer.empty(204)

    def _check_signature(self, call: RestCall, purpose: str) -> None:
        """Refuse an internal request that no worker of the group has signed, and all of them as a standalone worker."""
        signature_text, algorithm = call.headers.get(SIGNATURE), call.headers.get(SIGNATURE_ALGORITHM)
        signed = signature_text is not None and algorithm is not None
        sent = _signature_of(signature_text or "", algorithm or "") if signed else b""
        if not self._worker.config.distributed:
            raise RequestError(500, f"Kafka Connect in standalone mode does not support {purpose}.")
        if not signed:
            raise RequestError(400, "Internal request missing required signature")
        if algorithm != _ALGORITHM:
            raise RequestError(400, _OTHER_ALGORITHM.format(algorithm, _ALGORITHM))
        key = self._worker.herder.stores.configs.state.session_key
        expected = b"" if key is None else hmac.new(key, call.body, hashlib.sha256).digest()
        if not expected or not hmac.compare_digest(sent, expected):
            raise RequestError(403, "Internal request contained invalid signature.")


def _signature_of(encoded: str, algorithm: str) -> bytes:
    """Read a signature.

    Raises:
        RequestError: It is not base64, or Java has no such algorithm (400).
    """
    if not _HMAC.fullmatch(algorithm):
        raise RequestError(400, f"Algorithm {algorithm} not available")
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError as error:  # no base64, or no ASCII
        raise RequestError(400, f"{SIGNATURE} is not base64: {error}") from error


def _check_name(name: str, config: dict[str, str | None]) -> None:
    """Refuse a config of another name; a name that is null is that of the URL."""
    if config.get("name") is None:
        config.pop("name", None)
        return
    own = config["name"]
    if own != name:
        raise RequestError(
            400, f"Connector name configuration ({own}) doesn't match connector name in the URL ({name})"
        )
