"""One task's run over its Arrow batches, without Spark and without Kafka."""

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from protocol.messages import BatchStarted, Progress
from protocol.topics import ARRIVED, ORIGIN
from spark_job import publish
from spark_job.attempt import Attempt, Identity
from spark_job.instrument import work_through
from spark_job.publish import Feedback, Publisher
from spark_job.rows import Function, KafkaRows, Record, Rows, SchemaRows

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
FEEDBACK = Feedback(pipeline="p", bootstrap_servers="127.0.0.1:1", every_s=0.05)


class Said(list[Any]):
    """Stands in for the producer."""

    def send(self, message: Any) -> None:
        self.append(message)

    def flush(self) -> None:
        self.append("flushed")


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    made = Said()
    monkeypatch.setattr(Feedback, "publisher", lambda self: made)
    return made


def batch(records: list[Record]) -> pa.RecordBatch:
    """As Spark's Kafka source gives it."""
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([r.key for r in records], pa.binary()),
            "value": pa.array([r.value for r in records], pa.binary()),
            "topic": pa.array([r.topic for r in records]),
            "partition": pa.array([r.partition for r in records], pa.int32()),
            "offset": pa.array([r.offset for r in records], pa.int64()),
            "timestamp": pa.array([int(r.timestamp_s * 1e6) for r in records], pa.timestamp("us", "UTC")),
            "headers": pa.array([[{"key": k, "value": v} for k, v in r.headers] or None for r in records], HEADERS),
        }
    )


def record(offset: int, *, partition: int = 0, headers: tuple[tuple[str, bytes], ...] = (), ago: float = 1.0):
    return Record(b"k%d" % offset, b"v%d" % offset, "t", partition, offset, time.time() - ago, headers)


def run(
    batches: list[pa.RecordBatch], function: Function, *, rows: Rows | None = None, skip: bool = False
) -> Iterator[pa.RecordBatch]:
    return work_through(
        iter(batches),
        function,
        rows=rows or KafkaRows(),
        attempt=Attempt(Identity(query="q", run="r", batch=0, task=0, attempt=0, slots=1)),
        feedback=FEEDBACK,
        skip_errors=skip,
        visible_every_s=0.02,
    )


def test_results_keep_order_key_and_origin(said: Said) -> None:
    made = [record(0, headers=((ORIGIN, b"raw/0/9"), ("mine", b"x"))), record(1)]
    (out,) = run([batch(made)], lambda r: r.value.upper())
    assert out.to_pylist() == [
        {"key": b"k0", "value": b"V0", "headers": [{"key": ORIGIN, "value": b"raw/0/9"}]},
        {"key": b"k1", "value": b"V1", "headers": []},
    ]


def test_none_is_no_result_and_a_list_is_several(said: Said) -> None:
    answers = [None, ["a", b"b"], ("other", "c"), {"value": "d", "headers": [("h", b"1")]}]
    (out,) = run([batch([record(i) for i in range(4)])], lambda r: answers[r.offset])
    assert [(row["key"], row["value"]) for row in out.to_pylist()] == [
        (b"k1", b"a"),
        (b"k1", b"b"),
        (b"other", b"c"),
        (b"k3", b"d"),
    ]
    assert out.to_pylist()[3]["headers"] == [{"key": "h", "value": b"1"}]
    assert said[-2].count == 4


def test_a_schema_takes_tuples_and_dicts(said: Said) -> None:
    rows = SchemaRows(pa.schema([("n", pa.int64()), ("s", pa.string())]))
    answers = [(1, "a"), [{"n": 2}, (3, "c")], None]
    (out,) = run([batch([record(i) for i in range(3)])], lambda r: answers[r.offset], rows=rows)
    assert out.to_pylist() == [{"n": 1, "s": "a"}, {"n": 2, "s": None}, {"n": 3, "s": "c"}]


@pytest.mark.parametrize("rows", [KafkaRows(), SchemaRows(pa.schema([("n", pa.int64())]))], ids=["kafka", "own"])
def test_an_answer_that_fits_nowhere_is_named(said: Said, rows: Rows) -> None:
    with pytest.raises(TypeError, match="the instrumented function returned"):
        list(run([batch([record(0)])], lambda r: 1.5, rows=rows))


def test_start_comes_first_and_done_last(said: Said) -> None:
    list(run([batch([record(5), record(6)]), batch([record(8)])], lambda r: b""))
    start, *_, end, flushed = said
    assert isinstance(start, BatchStarted)
    assert (start.first, start.received) == (5, 2)
    assert isinstance(end, Progress)
    assert (end.first, end.next, end.count, end.received, end.done) == (5, 9, 3, 3, True)
    assert flushed == "flushed"


def test_slow_calls_are_reported_one_by_one(said: Said) -> None:
    def slow(r: Record) -> bytes:
        time.sleep(0.06)
        return b""

    assert len(list(run([batch([record(i) for i in range(3)])], slow))) == 3
    assert [m.count for m in said if isinstance(m, Progress)][:2] == [1, 2]


def test_what_was_not_taken_does_not_count(said: Said) -> None:
    def slow(r: Record) -> bytes:
        time.sleep(0.06)
        return b""

    results = run([batch([record(0), record(1)])], slow)
    next(results)
    assert not [m for m in said if isinstance(m, Progress) and m.count]
    next(results)  # taking the second says that the first has left
    assert [m.count for m in said if isinstance(m, Progress)] == [1]
    results.close()
    assert said[-2].done is False
    assert said[-2].count == 1
    assert said[-2].busy_s >= 0.12


def test_response_times_count_from_the_arrival_header(said: Said) -> None:
    arrived = str(int((time.time() - 10) * 1000)).encode()
    made = [record(0, headers=((ARRIVED, arrived),), ago=1.0), record(1, headers=((ARRIVED, b"?"),), ago=2.0)]
    list(run([batch(made)], lambda r: b""))
    assert said[-2].response_max_s == pytest.approx(10, abs=0.5)
    assert said[-2].response_sum_s == pytest.approx(12, abs=0.5)


def test_partitions_are_counted_apart(said: Said) -> None:
    made = [record(0, partition=1), record(1, partition=1), record(7, partition=2)]
    list(run([batch(made)], lambda r: b""))
    done = {m.partition: (m.first, m.next, m.count) for m in said if isinstance(m, Progress) and m.done}
    assert done == {1: (0, 2, 2), 2: (7, 8, 1)}


def test_a_failing_function_fails_the_task_and_its_work_counts_as_busy(said: Said) -> None:
    def fails(r: Record) -> bytes:
        time.sleep(0.005)
        if r.offset == 1:
            raise KeyError("no")
        return b""

    with pytest.raises(KeyError):
        list(run([batch([record(0), record(1)])], fails))
    assert (said[-2].count, said[-2].done) == (0, False)
    assert said[-2].busy_s >= 0.01


def test_skipped_records_are_finished_without_result(said: Said, caplog: pytest.LogCaptureFixture) -> None:
    def fails(r: Record) -> bytes:
        if r.offset < 2:
            raise KeyError("no")
        return b"x"

    (out,) = run([batch([record(i) for i in range(3)])], fails, skip=True)
    assert out.num_rows == 1
    assert said[-2].count == 3
    assert [r.getMessage().startswith("2 records were skipped") for r in caplog.records] == [False, True]


def test_a_task_without_records_says_nothing(said: Said) -> None:
    assert list(run([], lambda r: b"")) == []
    assert said == []


def test_a_broken_feedback_topic_neither_fails_nor_stalls(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "_FLUSH_S", 0.3)
    broken = Publisher(Feedback(pipeline="gone", bootstrap_servers="127.0.0.1:1"))
    attempt = Attempt(Identity(query="q", run="r", batch=0, task=0, attempt=0, slots=1))
    attempt.receive("t", 0, first=0, records=1, now_s=1.0)
    spent = []
    for _ in range(3):
        begin = time.perf_counter()
        broken.send(attempt.started("t", 0))
        broken.flush()
        spent.append(time.perf_counter() - begin)
    assert max(spent) < 1.0
    assert max(spent[1:]) < 0.2, "only the first flush waits"
    assert len([r for r in caplog.records if "feedback to gone.feedback fails" in r.getMessage()]) == 1


def test_a_wrong_setting_of_the_feedback_drops_and_counts() -> None:
    broken = Publisher(Feedback(pipeline="wrong", bootstrap_servers="x:1", kafka={"no.such.setting": "1"}))
    attempt = Attempt(Identity(query="q", run="r", batch=0, task=0, attempt=0, slots=1))
    attempt.receive("t", 0, first=0, records=1, now_s=1.0)
    broken.send(attempt.started("t", 0))
    broken.flush()
    assert broken.dropped == 1
