"""Remove from an installation what an application does not use: half of its size.

    python3 slim.py /opt/penstock/lib/python3.11/site-packages

Spark's parts for machine learning, Hive, Spark Connect, pandas on Spark, DStreams, its shell and Kubernetes; natives of
other platforms in jars; Arrow's file system for S3; tests, headers, symbols of libraries. An application that uses one
of them needs an image built with WHOLE=1.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

JARS = (  # names begin so
    "JLargeArrays", "JTransforms", "algebra_", "arpack", "blas-", "breeze", "cats-", "lapack", "spark-graphx",
    "spark-mllib_", "spire",  # machine learning; Spark itself needs spark-mllib-local
    "HikariCP", "datanucleus", "derby", "hive-beeline", "hive-cli", "hive-exec", "hive-jdbc", "hive-metastore",
    "hive-service", "hive-shims", "javax.jdo", "jdo-api", "jpam", "spark-hive",  # Hive
    "kubernetes-", "spark-kubernetes", "vertx-", "volcano-", "zjsonpatch",  # executors on Kubernetes
    "spark-connect_", "spark-repl", "scala-compiler", "jline",  # Spark Connect, the shell
    "curator-", "zookeeper",  # a standalone master with a standby
    "rocksdbjni", "spark-pipelines", "spark-streaming_",  # state stores of its own queries, pipelines, DStreams
)  # fmt: skip
FOLDERS = (
    "pyspark/examples", "pyspark/jars/connect-repl", "pandas/tests", "pyarrow/include", "pyarrow/tests", "pyarrow/src",
    "numpy/*/tests", "numpy/tests", "pyspark/*/tests", "pyspark/*/*/tests",
    "pyspark/ml", "pyspark/mllib", "pyspark/pandas",
)  # fmt: skip
# Of copies of one library under several names the loader takes the one with the version of its interface.
FILES = ("pyarrow/libarrow_flight*", "pyarrow/_flight*", "pyarrow/libarrow_s3*", "pyarrow/_s3fs*",
         "pyarrow/libarrow*.so", "pyarrow/lib*.so.*.*.*")  # fmt: skip
# Whose symbols for debuggers go; the libraries of other wheels were moved by a tool that does not survive this.
STRIPPED = ("_polars_runtime*/*.so", "pyarrow/*.so*", "fastavro/*.so", "obstore/*.so", "cryptography/**/*.so")

_NATIVE = re.compile(r"\.(so|dll|dylib|jnilib)(\.\d+)*$|netty_tcnative_")
_WORDS = {"x86_64": ("linux64", "linux/amd64", "linux/x86_64", "linux-x86_64", "linux_x86_64"),
          "aarch64": ("linux-aarch64", "linux/aarch64", "linux_aarch")}  # fmt: skip


def main(packages: Path) -> None:
    """Remove all of it below a folder of packages."""
    jars = packages / "pyspark" / "jars"
    for path in jars.glob("*.jar"):
        if path.name.startswith(JARS) or _is_foreign(path.name):
            path.unlink()
    for path in sorted(jars.glob("*.jar")):
        if path.name.startswith(("zstd-jni", "snappy-java", "lz4-java")):
            _keep_own_natives(path)
    for pattern in FOLDERS:
        for path in packages.glob(pattern):
            shutil.rmtree(path)
    for pattern in FILES:
        for path in packages.glob(pattern):
            path.unlink()
    for pattern in STRIPPED:
        for path in packages.glob(pattern):
            subprocess.run(["strip", "--strip-unneeded", str(path)], check=True)


def _is_foreign(name: str) -> bool:
    """Return whether a jar holds natives of another platform alone."""
    return "-osx-" in name or "-windows-" in name or ("-linux-" in name and platform.machine() not in name)


def _keep_own_natives(path: Path) -> None:
    """Write a jar anew without the natives of other platforms; the same bytes each time."""
    own, made = _WORDS[platform.machine()], path.with_suffix(".made")
    with zipfile.ZipFile(path) as before, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as after:
        for entry in before.infolist():
            if _NATIVE.search(entry.filename) and not (
                any(word in entry.filename for word in own) and "musl" not in entry.filename
            ):
                continue
            kept = zipfile.ZipInfo(entry.filename, entry.date_time)
            kept.compress_type = zipfile.ZIP_DEFLATED
            after.writestr(kept, before.read(entry))
    made.replace(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
