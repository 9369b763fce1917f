"""Spark settings under which results appear as computed and a micro-batch costs little, and a session with them."""

import contextlib
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spark_job.errors import JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("spillway.instrument")
_LARGE_BUFFER = 4096

# What an instrumented query wants of any session; the buffer belongs to the application, not to the query.
RECOMMENDED: Mapping[str, str] = {
    # Results wait in the Python worker's output buffer until it is full: 64 KiB hide seconds of work, and even 512
    # bytes hold back the end of each batch of results until the next. 0 and 1 mean other things to Python.
    "spark.buffer.size": "16",
    # One Arrow batch holds a task's whole part, so that its size is known at once.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    # Workers, and with them the feedback producers, live on between batches.
    "spark.python.worker.reuse": "true",
    # Without it the first batch waits for every worker's imports: see spark_job.daemon.
    "spark.python.daemon.module": "spark_job.daemon",
}

# Spares work beside the micro-batch; worth measuring one by one on a quiet machine, which was not done.
QUICK: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.locality.wait": "0",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.streaming.stopTimeout": "10s",
}


def session(
    name: str, *, master: str | None, jars: Sequence[str | Path] = (), conf: Mapping[str, str] | None = None
) -> "SparkSession":
    """A session with RECOMMENDED and QUICK, which ``conf`` overrides; raises JobError without a Java.

    Without ``master`` it is spark-submit's, or else four local threads.
    """
    require_java()
    # Otherwise the workers run whatever `python3` is on the path, without this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    settings = {**RECOMMENDED, **QUICK}
    if jars:
        settings["spark.jars"] = ",".join(str(jar) for jar in jars)
    builder = SparkSession.builder.appName(name)
    if master or not _submitted():
        builder = builder.master(master or "local[4]")
    for setting, value in {**settings, **(conf or {})}.items():
        builder = builder.config(setting, value)
    return builder.getOrCreate()


@contextlib.contextmanager
def output_to(log: Path) -> Iterator[None]:
    """Sends what is written to stdout and stderr to ``log``; a JVM started inside keeps writing there."""
    kept = [(stream.fileno(), os.dup(stream.fileno())) for stream in (sys.__stdout__, sys.__stderr__) if stream]
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        sys.stdout.flush()
        for number, _ in kept:
            os.dup2(target, number)
        yield
    finally:
        for number, copy in kept:
            os.dup2(copy, number)
            os.close(copy)
        os.close(target)


def require_java() -> None:
    """Raises JobError unless Spark will find a Java of 17 or newer."""
    if _submitted():
        return
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    how = "install one or point JAVA_HOME at it"
    if java is None or not Path(java).is_file():
        raise JobError(f"no Java was found, Spark needs 17 or newer; {how}")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JobError(f"{java} does not run ({error}); {how}") from None
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < 17:
        raise JobError(f"{java} is version {version[1] if version else 'unknown'}, Spark needs 17 or newer; {how}")


def _submitted() -> bool:
    """True under spark-submit, whose Java runs already and which knows the master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def warn_of_large_buffer(size: str) -> None:
    """One line if results would be held back."""
    if _bytes(size) > _LARGE_BUFFER:
        _log.warning(
            "spark.buffer.size is %s: results wait in the Python workers until as much has gathered, and response "
            "times are reported too low; set it to %s when the application starts",
            size,
            RECOMMENDED["spark.buffer.size"],
        )


def _bytes(size: str) -> int:
    found = re.fullmatch(r"(\d+)([kmg]?)b?", size.strip().lower())
    if found is None:
        return 0
    return int(found[1]) * {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}[found[2]]
