"""Kafka Connect's own classes as the judge of cases: ``java/ConnectJudge.java``, compiled against jars of Maven."""

import base64
import json
import re
import subprocess
import threading
from pathlib import Path

from java_sources import compiled
from penstock.base.jars import java_command
from penstock.tools.broker.java_worker import worker_jars

__all__ = ["JavaJudge"]

SOURCE = Path(__file__).parent / "java" / "ConnectJudge.java"
OBJECT = re.compile(r"\[B@[0-9a-f]+")  # Java's name of an array: another one each time
HASH = re.compile(r"(?<=[\w$])@[0-9a-f]{5,8}\b")
PATIENCE_S = 180


class JavaJudge:
    """A process that adds to cases what Kafka Connect makes of them.

    Args:
        folder: Where the compiled classes are.
    """

    def __init__(self, folder):
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        path = compiled(SOURCE, folder, worker_jars())
        quiet = ["-Dlog4j2.level=OFF", "-Dlog4j2.StatusLogger.level=OFF", "-Xmx384m"]
        command = [java_command(), *quiet, "-cp", path, "ConnectJudge"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def judged(self, cases):
        """The cases with their outcomes; steps that Java cannot be given are left out."""
        lines = [f"{json.dumps(case)}\n" for case in cases]

        def send():
            self._process.stdin.writelines(lines)
            self._process.stdin.flush()

        sender = threading.Thread(target=send)
        sender.start()
        answers = [json.loads(self._process.stdout.readline()) for _ in lines]
        sender.join()
        return [outcome(answer) for answer in answers]

    def close(self):
        self._process.stdin.close()
        try:
            self._process.wait(PATIENCE_S)
        finally:
            self._process.kill()
            self._process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def outcome(case):
    steps = []
    for step in case["steps"]:
        if "unreadable" in step:
            continue
        out = step.get("out")
        if "from_connect" in step and out is not None and OBJECT.search(text_of(out)):
            steps.append({**step, "out": {"any": True}})
        elif "error" in step:
            steps.append({**step, "error": without_hashes(step["error"])})
        else:
            steps.append(step)
    case = {**case, "steps": steps, "kafka_connect": "4.3.1"}
    if "configure_error" in case:
        case["configure_error"] = without_hashes(case["configure_error"])
    return case


def text_of(out):
    """The text of bytes in whichever encoding, without the zeros of those that have two or four bytes for a character."""
    data = base64.b64decode(out["base64"]).decode("latin-1") if "base64" in out else out["text"]
    return data.replace("\0", "")


def without_hashes(error):
    message = error["message"]
    return {**error, "message": None if message is None else HASH.sub("@HASH", message)}
