"""Creation of Java's archives of Spark's classes, by small applications whose Java writes them at its end."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.engines.spark.java_archive import archive_path, end_java, recording_options
from penstock.errors import EnvironmentProblemError

__all__ = ["make_archives"]

_PATIENCE_S = 300
_MOST_ARCHIVES = 6  # 170 MB and 70 MB for each Java and PySpark


def make_archives() -> list[Path]:
    """Create the archives that are missing, at the same time; return the paths of both.

    Raises:
        EnvironmentProblemError: One could not be created.
    """
    paths = {with_sql: archive_path(with_sql=with_sql) for with_sql in (False, True)}
    with ThreadPoolExecutor() as pool:
        archives = [
            pool.submit(make_archive, with_sql=with_sql) for with_sql, path in paths.items() if not path.exists()
        ]
    for each in archives:
        each.result()
    return [*paths.values()]


def make_archive(*, with_sql: bool) -> Path:
    """Create an archive, even if there is one, in half a minute; of others, only the newest are kept.

    Args:
        with_sql: Whether it is for applications with queries of Spark SQL.

    Raises:
        EnvironmentProblemError: It could not be created.
    """
    path = archive_path(with_sql=with_sql)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".archive-", dir=path.parent) as scratch:
        archive = Path(scratch) / "classes.jsa"
        kind = "sql" if with_sql else "threads"
        command = [sys.executable, "-m", "penstock.cli.java_archive", kind, scratch, str(archive)]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)  # noqa: S603
        except subprocess.TimeoutExpired as error:
            raise EnvironmentProblemError(
                f"Java's class archive was not done in {_PATIENCE_S} s", hint="Try again when the machine is less busy."
            ) from error
        if run.returncode or not archive.exists():
            said = (run.stderr or run.stdout).strip().splitlines() or ["Java wrote none"]
            raise EnvironmentProblemError(
                f"Java's class archive could not be made: {said[-1]}", hint="Spark works without it, and starts slower."
            )
        archive.replace(path)
    others = sorted(path.parent.glob("spark-*.jsa"), key=lambda each: each.stat().st_mtime, reverse=True)
    for old in others[_MOST_ARCHIVES:]:
        old.unlink(missing_ok=True)
    return path


def _run(scratch: Path, archive: Path, *, with_sql: bool) -> None:
    """Run an application with a stage of each kind: Java loads all classes that applications need."""
    import pyarrow as pa

    from penstock import KafkaStreams, StreamsBuilder
    from penstock.log.open import open_log

    url = f"sqlite:///{scratch / 'log.db'}"
    with open_log(url) as log:
        for topic in ("in", "out"):
            log.create_topic(topic, 2)
        columns = {"timestamp": pa.array([1]), "key": pa.array([b"k"], pa.large_binary())}
        records = pa.RecordBatch.from_pydict({**columns, "value": pa.array([b"v"], pa.large_binary())})
        for partition in range(2):
            log.append("in", partition, records)
    builder = StreamsBuilder()
    builder.stream("in").group_by(lambda _, value: value).count().to_stream().map_values(str).to("out")
    serdes = {"default.key.serde": "string", "default.value.serde": "string"}
    settings = {
        "bootstrap.servers": url,
        "state.dir": str(scratch),
        "spark.master": "local[2]",
        "spark.driver.extraJavaOptions": recording_options(archive),
    }
    for number, mode in enumerate(("continuous", "micro_batch")[: 1 + with_sql]):
        name = {"application.id": f"penstock-class-archive-{number}", "processing.mode": mode}
        KafkaStreams(builder.build(), {**settings, **serdes, **name}).run(until="latest")
    end_java(_PATIENCE_S)


if __name__ == "__main__":
    is_with_sql = sys.argv[1] == "sql"
    if sys.argv[2:]:
        _run(Path(sys.argv[2]), Path(sys.argv[3]), with_sql=is_with_sql)
    else:  # at the first start of an application, in the background
        make_archive(with_sql=is_with_sql)
