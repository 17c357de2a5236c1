"""Programs in Java that tests compile against jars of Maven."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from penstock.base.jars import java_command

__all__ = ["compiler", "compiled"]

PATIENCE_S = 180


def compiler() -> str | None:
    """``javac`` beside the ``java`` that is used, or on the PATH."""
    beside = Path(java_command()).with_name("javac")
    return str(beside) if beside.exists() else shutil.which("javac")


def compiled(source: Path, classes: Path, jars: Path) -> str:
    """Compile a program into a folder, and return its class path."""
    javac = compiler()
    assert javac is not None, "there is no javac: a JDK is needed"
    path = f"{classes}:{jars}/*"
    subprocess.run([javac, "-nowarn", "-cp", path, "-d", str(classes), str(source)], check=True, timeout=PATIENCE_S)
    return path
