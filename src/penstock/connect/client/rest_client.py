"""A client of a worker's REST interface, Penstock's or Kafka Connect's."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from penstock.base.masking import without_passwords
from penstock.errors import ConfigError, ConnectError, EnvironmentProblemError

if TYPE_CHECKING:
    import httpx

__all__ = ["ConnectClient"]

REBALANCING = 409
TRIES, WAIT_S = 10, 1.0


class ConnectClient:
    """Requests to a group of workers; any of them answers.

    Args:
        url: The address of a worker, such as ``http://localhost:8083``.
        user: ``name:password``, for workers with basic authentication.
        timeout_s: The longest time of a request.

    Raises:
        ConfigError: The URL is none.
    """

    def __init__(self, url: str, user: str | None = None, *, timeout_s: float = 60.0) -> None:
        try:
            import httpx
        except ImportError as error:
            raise EnvironmentProblemError("httpx is not installed", hint='pip install "penstock[connect]"') from error
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"{url!r} is not the URL of a worker", hint="For example http://localhost:8083")
        name, colon, password = (user or "").partition(":")
        self.url = without_passwords(url)
        self._client: httpx.Client = httpx.Client(
            base_url=url.rstrip("/"), auth=(name, password) if colon else None, timeout=timeout_s
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def configs(self) -> dict[str, dict[str, str]]:
        """Return the configs of all connectors, by name."""
        connectors = self._ask("GET", "/connectors?expand=info")
        if isinstance(connectors, list):  # workers before Kafka 2.3
            return {name: dict(self._ask("GET", f"{_path(name)}/config")) for name in connectors}
        return {name: dict(each["info"]["config"]) for name, each in connectors.items()}

    def statuses(self) -> dict[str, dict[str, Any]]:
        """Return the config (``info``) and the state (``status``) of all connectors, by name."""
        return dict(self._ask("GET", "/connectors?expand=info&expand=status"))

    def restart(self, name: str, *, only_failed: bool = False) -> None:
        """Restart a connector with its tasks, or only those of them that have failed."""
        self._ask("POST", f"{_path(name)}/restart?includeTasks=true&onlyFailed={str(only_failed).lower()}")

    def pause(self, name: str) -> None:
        """Pause a connector."""
        self._ask("PUT", f"{_path(name)}/pause")

    def resume(self, name: str) -> None:
        """Resume a paused connector."""
        self._ask("PUT", f"{_path(name)}/resume")

    def config(self, name: str) -> dict[str, str]:
        """Return the config of a connector.

        Raises:
            ConnectError: There is none of this name.
        """
        return dict(self._ask("GET", f"{_path(name)}/config"))

    def problems(self, config: Mapping[str, str]) -> list[str]:
        """Return what is wrong with a config, by the worker's own validation: setting and error."""
        kind = config.get("connector.class", "").rpartition(".")[2]
        if not kind:
            return ["connector.class: it must be set"]
        try:
            body = self._ask("PUT", f"/connector-plugins/{quote(kind, safe='')}/config/validate", dict(config))
        except ConnectError as error:
            return [error.message]
        values = [each["value"] for each in body["configs"]]
        return [f"{each['name']}: {text}" for each in values for text in each["errors"]]

    def experimental(self) -> frozenset[str]:
        """The connectors of the worker that it calls experimental; none of a worker that does not know the word."""
        plugins = self._ask("GET", "/connector-plugins")
        return frozenset(str(each["class"]) for each in plugins if each.get("experimental"))

    def put_config(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector, or change its config."""
        self._ask("PUT", f"{_path(name)}/config", dict(config))

    def delete(self, name: str) -> None:
        """Delete a connector."""
        self._ask("DELETE", _path(name))

    def topics(self, name: str) -> list[str]:
        """Return the topics that a connector has written or read since they were reset last."""
        reply = self._ask("GET", f"{_path(name)}/topics")
        return list(reply.get(name, {}).get("topics", []))

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """Ask, and ask again while the workers rebalance.

        Raises:
            ConnectError: The worker refuses, or cannot be reached.
        """
        import httpx

        answer: httpx.Response | None = None
        for attempt in range(TRIES):
            try:
                answer = self._client.request(method, path, json=body)
            except httpx.TransportError as error:
                raise ConnectError(
                    f"the worker {self.url} cannot be reached: {error}",
                    hint="Check that it runs. `penstock connect worker` starts one; --url names another one.",
                ) from error
            if answer.status_code != REBALANCING or attempt == TRIES - 1:
                break
            time.sleep(WAIT_S)
        assert answer is not None  # noqa: S101 - there is at least one attempt
        if answer.is_success:
            return answer.json() if answer.content else None
        raise ConnectError(
            f"the worker {self.url} refuses {method} {path}: {_message(answer)} ({answer.status_code})",
            hint="Check the name." if answer.status_code == 404 else "Correct what it names.",
        )


def _path(name: str) -> str:
    return f"/connectors/{quote(name, safe='')}"


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:200] or answer.reason_phrase
