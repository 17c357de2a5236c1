"""The life of a task: start, run, pause, resume, stop, fail."""

from __future__ import annotations

from penstock.base.log_lines import Work, own_logger
from penstock.connect.delivery.traces import trace_text
from penstock.connect.plugins import PluginKind
from penstock.connect.tasks.parts import TaskLink, TaskParts, TaskSpec
from penstock.connect.tasks.sink_run import SinkRun
from penstock.connect.tasks.source_run import SourceRun
from penstock.errors import PenstockError

__all__ = ["run_task"]

_log = own_logger(__name__)
_PAUSED_S = 0.5


def run_task(spec: TaskSpec, link: TaskLink) -> None:
    """Run a task until another state is wanted or it fails; the link hears of every state."""
    with Work(application=spec.task[0], task=f"{spec.task[0]}-{spec.task[1]}"):
        _run(spec, link)


def _run(spec: TaskSpec, link: TaskLink) -> None:
    run: SourceRun | SinkRun | None = None
    parts: TaskParts | None = None
    failed = True
    try:
        parts = TaskParts(spec)
        if not _await_start(link, parts):
            failed = False
            return
        is_sink = PluginKind.SINK in parts.plugin.kinds
        run = SinkRun(parts, link) if is_sink else SourceRun(parts, link)
        run.start()
        link.report("RUNNING", version=parts.plugin.version)
        _loop(run, link, parts)
        failed = False
    except Exception as error:  # noqa: BLE001 - whatever the connector raises, the task becomes FAILED
        _log.warning("task %s-%d has failed", *spec.task, exc_info=not isinstance(error, PenstockError))
        _finish(run, failed=True)
        run = None
        link.report("FAILED", version=parts.plugin.version if parts else None, trace=trace_text(error))
    finally:
        _finish(run, failed=failed)
        if parts is not None:
            parts.close()


def _await_start(link: TaskLink, parts: TaskParts) -> bool:
    """Wait while the task is to begin paused; return whether it is to begin at all."""
    if link.target == "PAUSED":
        link.report("PAUSED", version=parts.plugin.version)
        while link.target == "PAUSED":
            link.wait(_PAUSED_S)
    return link.target == "STARTED"


def _loop(run: SourceRun | SinkRun, link: TaskLink, parts: TaskParts) -> None:
    while link.target != "STOPPED":
        if link.target == "STARTED":
            run.step()
            continue
        link.report("PAUSED", version=parts.plugin.version)
        while link.target == "PAUSED":
            if isinstance(run, SinkRun):
                run.idle()
            else:
                link.wait(_PAUSED_S)
        if link.target == "STARTED":
            if isinstance(run, SinkRun):
                run.wake()
            link.report("RUNNING", version=parts.plugin.version)


def _finish(run: SourceRun | SinkRun | None, *, failed: bool) -> None:
    if run is None:
        return
    try:
        run.finish(failed=failed)
    except Exception:  # noqa: BLE001 - it ends anyway
        _log.warning("a task did not stop cleanly", exc_info=True)
