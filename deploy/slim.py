"""Make an installation smaller: remove what an application does not use, compile what it imports.

    python3 slim.py cut /opt/penstock/lib/python3.11/site-packages
    /opt/penstock/bin/python slim.py compile

Cut are pandas, Spark's parts for machine learning, Hive, Spark Connect, DStreams, its shell, YARN, HDFS and
Kubernetes, the rules of languages in its library of Unicode; natives of other platforms in jars; Arrow's file systems
in clouds, and Flight; tests, headers, symbols of libraries. An application that uses one of them needs an
image built with WHOLE=1.
"""

from __future__ import annotations

import importlib
import pkgutil
import platform
import py_compile
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
    "spark-yarn",  # executors on YARN
)  # fmt: skip
FOLDERS = (
    "pyspark/examples", "pyspark/jars/connect-repl", "pandas/tests", "pyarrow/include", "pyarrow/tests", "pyarrow/src",
    "numpy/*/tests", "numpy/tests", "pyspark/*/tests", "pyspark/*/*/tests",
    "pyspark/ml", "pyspark/mllib", "pyspark/pandas", "pyspark/data", "pyspark/sbin",
    "numpy/f2py", "numpy/distutils", "numpy/_core/include", "numpy/_core/lib", "numpy/random/lib", "numpy/typing/tests",
    "pandas", "pandas-*", "dateutil", "python_dateutil-*", "tzdata", "tzdata-*",  # PySpark's functions over pandas
)  # fmt: skip
# Of copies of one library under several names the loader takes the one with the version of its interface.
FILES = ("pyarrow/libarrow_flight*", "pyarrow/_flight*", "pyarrow/libarrow_s3*", "pyarrow/_s3fs*",
         "pyarrow/libarrow_python_flight*", "pyarrow/_azurefs*",
         "pyarrow/_gcsfs*", "pyarrow/*.pyx", "pyarrow/*.pxi", "pyarrow/includes/*", "**/*.pyi",
         "pyarrow/libarrow*.so", "pyarrow/lib*.so.*.*.*")  # fmt: skip
# Whose symbols for debuggers go; the libraries of other wheels were moved by a tool that does not survive this.
STRIPPED = ("_polars_runtime*/*.so", "pyarrow/*.so*", "fastavro/*.so", "obstore/*.so", "cryptography/**/*.so")
# What jars are kept without: entries that begin so.
_SHADED, _LOCALES = "org/apache/hadoop/shaded/", "com/ibm/icu/impl/data/icudata/"
ENTRIES = {
    "hadoop-client-api": (
        "org/apache/hadoop/yarn/", "org/apache/hadoop/hdfs/", "org/apache/hadoop/mapreduce/v2/", "webapps/",
    ),
    "hadoop-client-runtime": tuple(
        _SHADED + each
        for each in (
            "com/nimbusds/", "org/apache/commons/math3/", "org/apache/curator/",
            "org/eclipse/", "org/jline/", "org/xbill/",
        )
    ),
    "icu4j": tuple(
        _LOCALES + each
        for each in (
            "brkitr/burmese", "brkitr/cjdict", "brkitr/khmer", "brkitr/lao", "brkitr/thai", "curr/", "lang/", "rbnf/",
            "region/", "translit/", "unit/", "zone/",
        )
    ),
}  # fmt: skip
# What the modules of Penstock import only when it is needed.
LATER = (
    "pyspark.daemon", "pyspark.worker", "pyspark.sql", "pyspark.sql.functions", "pyspark.sql.pandas.functions",
    "pyspark.sql.worker.create_data_source", "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming.python_streaming_source_runner", "uvicorn.main", "uvicorn.protocols.http.h11_impl",
    "h2.connection", "fastapi", "starlette.staticfiles", "httpx", "jsonschema", "fastavro", "kafka",
    "confluent_kafka.schema_registry",
)  # fmt: skip

_NATIVE = re.compile(r"\.(so|dll|dylib|jnilib)(\.\d+)*$|netty_tcnative_")
_WORDS = {"x86_64": ("linux64", "linux/amd64", "linux/x86_64", "linux-x86_64", "linux_x86_64"),
          "aarch64": ("linux-aarch64", "linux/aarch64", "linux_aarch")}  # fmt: skip


def cut(packages: Path) -> None:
    """Remove all of it below a folder of packages."""
    jars = packages / "pyspark" / "jars"
    for path in jars.glob("*.jar"):
        if path.name.startswith(JARS) or _is_foreign(path.name):
            path.unlink()
    for path in sorted(jars.glob("*.jar")):
        if path.name.startswith(("zstd-jni", "snappy-java", "lz4-java", *ENTRIES)):
            _rewrite(path, next((left for name, left in ENTRIES.items() if path.name.startswith(name)), ()))
    for pattern in FOLDERS:
        for path in packages.glob(pattern):
            shutil.rmtree(path)
    for pattern in FILES:
        for path in packages.glob(pattern):
            if path.is_file():
                path.unlink()
    for pattern in STRIPPED:
        for path in packages.glob(pattern):
            subprocess.run(["strip", "--strip-unneeded", str(path)], check=True)


def compile_imported() -> None:
    """Compile what the modules of Penstock import, of this installation and of Python itself.

    The compiled files of all modules are 75 MB. They do not depend on the times of files, which an image may change.
    """
    import penstock

    sys.dont_write_bytecode = True
    for each in pkgutil.walk_packages(penstock.__path__, "penstock."):
        if not each.name.endswith("__main__"):
            _import(each.name)
    for name in LATER:
        _import(name)
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None) or ""
        if path.endswith(".py") and path != __file__:
            py_compile.compile(path, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - of an extra that is not installed, or of a terminal
        print(f"not compiled: {name}: {error}")


def _is_foreign(name: str) -> bool:
    """Return whether a jar holds natives of another platform alone."""
    return "-osx-" in name or "-windows-" in name or ("-linux-" in name and platform.machine() not in name)


def _rewrite(path: Path, left: tuple[str, ...]) -> None:
    """Write a jar anew without the natives of other platforms and without some entries; the same bytes each time."""
    own, made = _WORDS[platform.machine()], path.with_suffix(".made")
    with zipfile.ZipFile(path) as before, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as after:
        for entry in before.infolist():
            name = entry.filename
            if name.startswith(left or ("\0",)):
                continue
            if _NATIVE.search(name) and not (any(word in name for word in own) and "musl" not in name):
                continue
            content = before.read(entry)
            if left and name.startswith("META-INF/services/"):  # Java would warn of each class that is not there
                classes = content.decode().splitlines(keepends=True)
                content = "".join(each for each in classes if not each.replace(".", "/").startswith(left)).encode()
            kept = zipfile.ZipInfo(name, entry.date_time)
            kept.compress_type = zipfile.ZIP_DEFLATED
            after.writestr(kept, content, compresslevel=9)
    made.replace(path)


if __name__ == "__main__":
    if sys.argv[1:] == ["compile"]:
        compile_imported()
    else:
        cut(Path(sys.argv[2]))
