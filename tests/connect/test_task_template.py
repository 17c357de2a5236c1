"""The process that tasks are forked from: a fork of the worker, which multiprocessing takes as its own server."""

import json
import subprocess
import sys
import time

import psutil
import pytest

SCRIPT = """
import json, multiprocessing, os, signal, sys
from multiprocessing import forkserver
from penstock.connect.tasks.fork_template import fork_template


def child(pipe):
    pipe.send(os.getppid())


def parent_of_a_child():
    context = multiprocessing.get_context("forkserver")
    here, there = context.Pipe()
    process = context.Process(target=child, args=(there,))
    process.start()
    found = here.recv()
    process.join()
    assert process.exitcode == 0
    return found


if __name__ == "__main__":
    fork_template("sqlite:///none.db")
    template = forkserver._forkserver._forkserver_pid
    parents = [parent_of_a_child()]
    if "template" in sys.argv:
        os.kill(template, signal.SIGKILL)
        os.waitid(os.P_PID, template, os.WEXITED | os.WNOWAIT)
        parents.append(parent_of_a_child())
    print(json.dumps([template, parents, forkserver._forkserver._forkserver_pid]), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform != "linux" or sys.version_info >= (3, 14), reason="elsewhere the server is not a fork")
@pytest.mark.parametrize("killed", ["template", "worker"])
def test_tasks_are_forked_from_a_fork_of_the_worker_and_from_another_process_after_its_end(tmp_path, killed):
    script = tmp_path / "template_app.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), killed], check=False, capture_output=True, text=True, timeout=180, cwd=tmp_path
    )
    template, parents, last = json.loads(done.stdout)
    assert parents == ([template, last] if killed == "template" else [template])
    assert (template == last) == (killed == "worker")
    deadline = time.monotonic() + 120
    while psutil.pid_exists(last) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(last), "it outlives the worker that was killed"
