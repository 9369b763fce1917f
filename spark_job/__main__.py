"""Runs the reference job: ``python -m spark_job`` or under ``spark-submit``."""

import argparse
import contextlib
import logging
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_job.errors import JobError, SettingError
from spark_job.publish import Feedback
from spark_job.reference import JobSettings, check, start
from spark_job.session import output_to, session
from spark_job.work import DEFAULT_COST_S, Work, costs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

_STARTING = "Initializing"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m spark_job", description="Spillway's reference Spark job.")
    add = made.add_argument
    add("--bootstrap-servers", required=True, help="Kafka brokers, host:port,host:port")
    add("--pipeline", required=True, help="feedback goes to <pipeline>.feedback")
    add("--topics", required=True, help="processing topics, separated by commas")
    add("--result", required=True, help="result topic")
    add("--master", help="Spark master (default local[4]; under spark-submit its own)")
    add("--work", choices=("wait", "spin"), default="wait", help="wait, or use the processor")
    add("--cost", action="append", default=[], metavar="CLASS=SECONDS", help="class: key up to the first colon")
    add("--checkpoint", help="checkpoint location; default: a temporary folder, and no restart from it")
    add("--progress", choices=("async", "sync"), default="async", help="when offsets reach the checkpoint")
    add("--min-partitions", type=int, help="split Kafka partitions into at least so many tasks")
    add("--max-offsets-per-trigger", type=int, help="largest micro-batch, in records")
    add("--slots", type=int, help="tasks that run at once, if Spark does not know")
    add("--jars", default="", help="jars of Spark's Kafka connector, separated by commas")
    add("--conf", action="append", default=[], metavar="K=V", help="Spark setting")
    add("--kafka", action="append", default=[], metavar="K=V", help="Java client setting, for source and sink")
    add("--feedback-kafka", action="append", default=[], metavar="K=V", help="librdkafka setting, for the feedback")
    add("--spark-log", help="file for Spark's own output (default: kept only if the job fails; - for the terminal)")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status; what goes wrong is one line on stderr."""
    given = parser().parse_args(arguments)
    return run(given, jars=[jar for jar in given.jars.split(",") if jar])


def run(given: argparse.Namespace, *, jars: Iterable[str | Path]) -> int:
    folder = Path(tempfile.mkdtemp(prefix="spillway-job-"))
    log = None if given.spark_log == "-" else Path(given.spark_log or folder / "spark.log")
    stop = threading.Event()
    try:
        settings = _settings(given, folder)
        for warning in check(settings, librdkafka=settings.feedback.kafka):
            _say(warning, sys.stderr)
        if not given.checkpoint:
            _say(f"the checkpoint {settings.checkpoint} is temporary, a restart begins anew")
        _on_signals(stop, early=True)
        spark = _session(given, list(jars), log)
        try:
            _on_signals(stop)
            query = start(spark, settings)
            _run(query, stop)
        finally:
            with contextlib.suppress(Exception):
                spark.stop()
    except (SettingError, JobError) as error:
        return _fail(str(error), log, folder)
    except KeyboardInterrupt:
        pass
    except Exception as error:  # Spark's and py4j's, whose text is a page
        if not stop.is_set():
            return _fail(_first_line(error), log, folder)
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _run(query: "StreamingQuery", stop: threading.Event) -> None:
    while query.isActive and query.status["message"].startswith(_STARTING) and not stop.is_set():
        time.sleep(0.05)
    if query.isActive and not stop.is_set():
        _say(f"query {query.id} runs")
    while not stop.is_set():
        if query.awaitTermination(0.5):
            raise JobError(_first_line(query.exception() or "the query ended by itself"))
    query.stop()


def _session(given: argparse.Namespace, jars: list[str | Path], log: Path | None) -> "SparkSession":
    with output_to(log) if log else contextlib.nullcontext():
        spark = session(
            "spillway-job",
            master=given.master,
            jars=jars,
            conf={
                "spark.ui.showConsoleProgress": "false",
                "spark.log.level": "WARN",
                **_pairs("--conf", given.conf),
            },
        )
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    return spark


def _settings(given: argparse.Namespace, folder: Path) -> JobSettings:
    cost = costs(given.cost)
    return JobSettings(
        bootstrap_servers=given.bootstrap_servers,
        topics=[topic.strip() for topic in given.topics.split(",") if topic.strip()],
        result=given.result,
        feedback=Feedback(
            pipeline=given.pipeline,
            bootstrap_servers=given.bootstrap_servers,
            kafka=_pairs("--feedback-kafka", given.feedback_kafka),
            slots=given.slots,
        ),
        checkpoint=given.checkpoint or str(folder / "checkpoint"),
        work=Work(kind=given.work, default_s=cost.pop("default", DEFAULT_COST_S), classes=cost),
        progress=given.progress,
        min_partitions=given.min_partitions,
        max_offsets_per_trigger=given.max_offsets_per_trigger,
        kafka=_pairs("--kafka", given.kafka),
    )


def _pairs(setting: str, texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise SettingError(setting, f"is {text!r}; it must be K=V")
        pairs[name] = value
    return pairs


def _on_signals(stop: threading.Event, *, early: bool = False) -> None:
    """SIGTERM and Ctrl-C end the job; while the session starts there is nothing to end but the start."""

    def ask(number: int, frame: Any) -> None:
        stop.set()
        if early:
            raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGINT, ask)


def _say(text: str, stream: Any = None) -> None:
    print(f"spillway job: {text}", file=stream or sys.stdout, flush=True)


def _fail(text: str, log: Path | None, folder: Path) -> int:
    more = f"; Spark's log is {log}" if log and log.exists() and log.stat().st_size else ""
    print(f"spillway: {text}{more}", file=sys.stderr)
    if not more or log is None or folder not in log.parents:
        shutil.rmtree(folder, ignore_errors=True)  # nothing in it to look at
    return 1


def _first_line(error: object) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
