"""Puts a clock around an operator of a Spark query: results leave as computed, and the gateways hear of them.

Three lines in a query that reads Kafka already, ``records`` being the source's DataFrame (with the option
``includeHeaders``, so that arrival times and origins travel along)::

    feedback = Feedback(pipeline="orders", bootstrap_servers="kafka:9092")
    results = instrument(records, score, feedback=feedback)
    results.writeStream.format("kafka").option("topic", "scores")...

The executors need this package installed, as they need any other module that the function uses.
"""

import logging
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

from protocol.topics import ARRIVED
from spark_job.attempt import Attempt, Identity
from spark_job.errors import SettingError
from spark_job.publish import Feedback
from spark_job.rows import KAFKA_SCHEMA, Function, KafkaRows, Record, Rows, SchemaRows, read
from spark_job.session import warn_of_large_buffer

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

OnError = Literal["fail", "skip"]

_log = logging.getLogger("spillway.instrument")
_place = attrgetter("topic", "partition")


def instrument(
    records: "DataFrame",
    function: Function,
    *,
    feedback: Feedback,
    schema: "str | StructType" = KAFKA_SCHEMA,
    on_error: OnError = "fail",
    visible_every_s: float = 0.05,
) -> "DataFrame":
    """Applies ``function`` to each record of Spark's Kafka source, in order, and reports on it.

    ``function`` gets a :class:`Record`. With the default schema, the Kafka sink's, it returns the result's value as
    bytes or str (the record's key is kept), ``(key, value)``, ``(key, value, headers)``, None for no result, or a
    list of these; with a schema of its own tuples or dicts, None, or a list of them. ``spillway.origin`` is copied to
    the headers of Kafka results.

    ``on_error="fail"`` lets an exception fail the task, as Spark users expect; ``"skip"`` logs it, and the record
    counts as finished without a result. Results are handed on after ``visible_every_s`` of work at the latest, or
    after the call that exceeds it.
    """
    if on_error not in ("fail", "skip"):
        raise SettingError("on_error", f"is {on_error!r}; it must be fail or skip")
    if not 0 < visible_every_s <= feedback.every_s:
        raise SettingError(
            "visible_every_s", f"is {visible_every_s}; it must be above 0 and at most {feedback.every_s} (every_s)"
        )
    missing = {"key", "value", "topic", "partition", "offset", "timestamp"} - set(records.columns)
    if missing:
        raise SettingError("records", f"lack {', '.join(sorted(missing))}; give the Kafka source's own columns")

    context = records.sparkSession.sparkContext
    warn_of_large_buffer(context.getConf().get("spark.buffer.size", "65536") or "65536")
    slots = feedback.slots or context.defaultParallelism
    make_rows = _row_maker(schema)

    def run(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        return work_through(
            batches,
            function,
            rows=make_rows(),
            attempt=Attempt(identity(slots)),
            feedback=feedback,
            skip_errors=on_error == "skip",
            visible_every_s=visible_every_s,
        )

    return records.mapInArrow(run, schema)


def work_through(
    batches: "Iterator[pa.RecordBatch]",
    function: Function,
    *,
    rows: Rows,
    attempt: Attempt,
    feedback: Feedback,
    skip_errors: bool,
    visible_every_s: float,
) -> "Iterator[pa.RecordBatch]":
    """One attempt of a task, from its Arrow batches to batches of results."""
    publisher = None
    said_at = 0.0
    skipped = 0
    finished: list[Record] = []  # since results were last handed on
    busy: list[float] = []
    clock = time.perf_counter

    def left(left_s: float) -> None:
        """The results of ``finished`` are Spark's now."""
        done = 0
        for (topic, partition), group in groupby(finished, key=_place):
            part = list(group)
            attempt.finish(
                topic,
                partition,
                next_offset=part[-1].offset + 1,
                busy_s=sum(busy[done : done + len(part)]),
                arrivals_s=[_arrival(record, left_s) for record in part],
                left_s=left_s,
            )
            done += len(part)
        finished.clear()
        busy.clear()

    def say(*, done: bool = False) -> None:
        if publisher is not None:
            for message in attempt.progress(now_s=time.time(), done=done):
                publisher.send(message)

    try:
        for batch in batches:
            records = read(batch)
            if publisher is None:
                publisher = feedback.publisher()
                said_at = clock()
            for (topic, partition), group in groupby(records, key=_place):
                part = list(group)
                if attempt.receive(topic, partition, first=part[0].offset, records=len(part), now_s=time.time()):
                    publisher.send(attempt.started(topic, partition))
            handed_at = clock()
            for record in records:
                begin = clock()
                try:
                    result = function(record)
                except Exception as error:
                    if not skip_errors:
                        attempt.waste(record.topic, record.partition, clock() - begin)
                        raise
                    skipped += 1
                    if skipped == 1:
                        _log.warning("the instrumented function failed, its record is skipped: %r", error)
                    result = None
                end = clock()
                finished.append(record)
                busy.append(end - begin)
                if result is not None:
                    rows.add(record, result)
                if end - handed_at >= visible_every_s:
                    ready, now_s = rows.take(), time.time()
                    if ready is not None:
                        yield ready
                    left(now_s)
                    handed_at = clock()
                    if handed_at - said_at >= feedback.every_s:
                        say()
                        said_at = handed_at
            ready, now_s = rows.take(), time.time()
            if ready is not None:
                yield ready
            left(now_s)
            if clock() - said_at >= feedback.every_s:
                say()
                said_at = clock()
        say(done=True)
        if skipped:
            _log.warning("%d records were skipped, since the instrumented function failed on them", skipped)
    except BaseException:  # also GeneratorExit, when Spark stops reading
        for record, seconds in zip(finished, busy, strict=False):
            attempt.waste(record.topic, record.partition, seconds)
        say()
        raise
    finally:
        if publisher is not None:
            publisher.flush()


def identity(slots: int) -> Identity:
    """Who this task is, from Spark's task context; a DataFrame that is no stream is ``adhoc``."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return Identity(query="adhoc", run="adhoc", batch=0, task=0, attempt=0, slots=slots)
    return Identity(
        query=context.getLocalProperty("sql.streaming.queryId") or "adhoc",
        run=context.getLocalProperty("spark.jobGroup.id") or "adhoc",
        batch=int(context.getLocalProperty("streaming.sql.batchId") or 0),
        task=context.taskAttemptId(),
        attempt=context.attemptNumber(),
        slots=slots,
    )


def _arrival(record: Record, otherwise_s: float) -> float:
    if record.headers:
        for name, value in record.headers:
            if name == ARRIVED and value is not None:
                try:
                    return int(value) / 1000
                except ValueError:
                    break  # not ours: the timestamp is what is left
    return record.timestamp_s if record.timestamp_s >= 0 else otherwise_s


def _row_maker(schema: "str | StructType") -> Callable[[], Rows]:
    if schema == KAFKA_SCHEMA:
        return KafkaRows
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    columns = schema if isinstance(schema, StructType) else StructType.fromDDL(schema)
    arrow_schema = to_arrow_schema(columns, timezone="UTC")
    return lambda: SchemaRows(arrow_schema)
