"""The instrumented job on a real Spark and a real Kafka."""

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from embedded.jars import SPARK_CONNECTOR, fetch
from protocol.encoding import decode
from protocol.histogram import quantile
from protocol.messages import BatchStarted, Progress
from protocol.topics import ORIGIN, Topics, origin
from spark_job.instrument import instrument
from spark_job.publish import Feedback
from spark_job.reference import JobSettings, start
from spark_job.rows import Record
from spark_job.session import output_to, session
from spark_job.work import Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

FreshName = Callable[[str], str]


class Place:
    """The topics of one test."""

    def __init__(self, servers: str, name: str, partitions: int, checkpoint: Path) -> None:
        self.servers, self.processing, self.result = servers, f"{name}.processing", f"{name}.result"
        self.pipeline, self.checkpoint = name, str(checkpoint / name)
        admin = AdminClient({"bootstrap.servers": servers})
        stamped = {"message.timestamp.type": "LogAppendTime"}
        made = admin.create_topics(
            [
                NewTopic(self.processing, partitions, 1),
                NewTopic(self.result, 1, 1, config=stamped),
                NewTopic(Topics(name).feedback, 1, 1),
            ]
        )
        for future in made.values():
            future.result()

    def produce(self, per_partition: dict[int, int]) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 0})
        for partition, count in per_partition.items():
            for i in range(count):
                producer.produce(
                    self.processing,
                    b"v",
                    b"%d:%d" % (partition, i),
                    partition,
                    headers=[(ORIGIN, origin("raw", partition, i))],
                )
        assert producer.flush(30) == 0

    def read(self, topic: str) -> list[Message]:
        """All that is in the topic now."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "reader"})
        # The end is fixed first: a topic that is being written to may never show its end to a reader.
        ends = {
            p: consumer.get_watermark_offsets(TopicPartition(topic, p), 30)[1]
            for p in consumer.list_topics(topic, 30).topics[topic].partitions
        }
        consumer.assign([TopicPartition(topic, p, 0) for p, end in ends.items() if end])
        found: list[Message] = []
        while len(found) < sum(ends.values()):
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
            if message.offset() < ends[message.partition()]:
                found.append(message)
        consumer.close()
        return found

    def results(self) -> list[Message]:
        return self.read(self.result)

    def feedback(self) -> list[Any]:
        return [decode(message.value()) for message in self.read(Topics(self.pipeline).feedback)]

    def progress(self) -> list[Progress]:
        return [message for message in self.feedback() if isinstance(message, Progress)]

    def settings(self, **changed: Any) -> JobSettings:
        return JobSettings(
            **{
                "bootstrap_servers": self.servers,
                "topics": [self.processing],
                "result": self.result,
                "feedback": Feedback(pipeline=self.pipeline, bootstrap_servers=self.servers),
                "checkpoint": self.checkpoint,
                "work": Work(default_s=0.0),
                **changed,
            }
        )


@pytest.fixture
def place(bootstrap_servers: str, fresh_name: FreshName, tmp_path: Path) -> Callable[[int], Place]:
    return lambda partitions: Place(bootstrap_servers, fresh_name("job"), partitions, tmp_path)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    with output_to(tmp_path_factory.mktemp("spark") / "spark.log"):
        made = session(  # two attempts per task
            "tests",
            master="local[4,2]",
            jars=fetch(SPARK_CONNECTOR),
            conf={"spark.ui.showConsoleProgress": "false"},
        )
    yield made
    made.stop()


@contextlib.contextmanager
def running(spark: "SparkSession", settings: JobSettings) -> Iterator["StreamingQuery"]:
    query = start(spark, settings)
    try:
        yield query
    finally:
        query.stop()


def covered(progress: list[Progress]) -> dict[int, Counter[int]]:
    """How often each offset was finished, per partition, by attempts that came to their end."""
    seen: dict[int, Counter[int]] = defaultdict(Counter)
    for message in progress:
        if message.done:
            assert message.count == message.next - message.first == message.received
            seen[message.partition].update(range(message.first, message.next))
    return seen


@pytest.mark.parametrize("progress", ["async", "sync"])
def test_every_record_has_one_result_and_is_reported_once(
    spark: "SparkSession", place: Callable[[int], Place], progress: str
) -> None:
    here = place(4)
    here.produce(dict.fromkeys(range(4), 25))
    with running(spark, here.settings(progress=progress)) as query:
        query.processAllAvailable()
        here.produce(dict.fromkeys(range(4), 5))
        query.processAllAvailable()
    expected = Counter({(b"%d:%d" % (p, i)): 2 if i < 5 else 1 for p in range(4) for i in range(25)})
    results = here.results()
    assert Counter(message.key() for message in results) == expected
    for message in results:
        p, i = map(int, message.key().split(b":"))
        assert message.headers() == [(ORIGIN, origin("raw", p, i))]
    feedback = here.feedback()
    assert covered([m for m in feedback if isinstance(m, Progress)]) == {p: Counter(range(30)) for p in range(4)}
    assert {m.query for m in feedback} == {str(query.id)}
    assert {m.run for m in feedback} == {str(query.runId)}
    assert {m.slots for m in feedback} == {4}
    assert len({m.batch for m in feedback}) >= 2
    started = [m for m in feedback if isinstance(m, BatchStarted)]
    assert sum(m.received for m in started) == 120


def test_results_appear_as_computed_and_response_times_agree_with_a_reader(
    spark: "SparkSession", place: Callable[[int], Place], record_property: Callable[[str, object], None]
) -> None:
    here = place(1)
    with running(spark, here.settings(work=Work(default_s=0.010))) as query:
        here.produce({0: 1})
        query.processAllAvailable()  # the workers are warm
        here.produce({0: 100})
        query.processAllAvailable()
    produced = {m.offset(): m.timestamp()[1] for m in here.read(here.processing)}
    last = max(p.batch for p in here.progress())
    ends = [p for p in here.progress() if p.done and p.next > 1]
    stamps = [m.timestamp()[1] for m in here.results()][1:]
    assert len(stamps) == 100
    in_last = next(p for p in ends if p.batch == last)
    assert in_last.count >= 50, "the records were to share a batch"
    assert stamps[-1] - stamps[-in_last.count] > 0.5 * 10 * in_last.count

    seen = [(stamp - produced[offset]) / 1000 for offset, stamp in enumerate(stamps, start=1)]
    told_mean = sum(p.response_sum_s for p in ends) / sum(p.count for p in ends)
    told: Counter[int] = Counter()
    for end in ends:
        told.update({int(index): n for index, n in end.responses.items()})
    told_median = quantile(told, 0.5)
    assert told_median is not None
    record_property("mean_difference_s", statistics.mean(seen) - told_mean)
    print(
        f"reader − feedback: mean {statistics.mean(seen) - told_mean:+.3f} s, "
        f"median {statistics.median(seen) - told_median:+.3f} s"
    )
    assert abs(statistics.mean(seen) - told_mean) < 0.5
    assert abs(statistics.median(seen) - told_median) < 0.5


def test_split_partitions_are_reported_without_gap_or_overlap(
    spark: "SparkSession", place: Callable[[int], Place]
) -> None:
    here = place(2)
    here.produce({0: 60, 1: 40})
    with running(spark, here.settings(min_partitions=8)) as query:
        query.processAllAvailable()
    assert covered(here.progress()) == {0: Counter(range(60)), 1: Counter(range(40))}
    assert len({message.task for message in here.progress()}) >= 8


def test_one_task_reports_on_all_its_partitions(spark: "SparkSession", place: Callable[[int], Place]) -> None:
    here = place(3)
    here.produce({0: 10, 1: 10, 2: 10})
    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", here.servers)
        .option("subscribe", here.processing)
        .load()
        .coalesce(1)
    )
    feedback = here.settings().feedback
    rows = instrument(records, lambda r: (r.partition, r.offset), feedback=feedback, schema="p int, o bigint").collect()
    assert len({tuple(row) for row in rows}) == 30
    assert covered(here.progress()) == {p: Counter(range(10)) for p in range(3)}
    assert {(m.query, m.batch) for m in here.progress()} == {("adhoc", 0)}
    assert len({m.task for m in here.progress()}) == 1


def test_a_retried_task_reports_a_second_attempt_from_the_same_offset(
    spark: "SparkSession", place: Callable[[int], Place]
) -> None:
    here = place(2)
    here.produce({0: 20, 1: 20})

    def fails_once(record: Record) -> bytes:
        from pyspark import TaskContext

        time.sleep(0.015)
        context = TaskContext.get()
        assert context is not None
        if record.offset == 15 and context.attemptNumber() == 0:
            raise RuntimeError("once")
        return b"done"

    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", here.servers)
        .option("subscribe", here.processing)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        instrument(records, fails_once, feedback=here.settings().feedback)
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", here.servers)
        .option("topic", here.result)
        .option("checkpointLocation", here.checkpoint)
        .start()
    )
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    progress = here.progress()
    for partition in (0, 1):
        first = [m for m in progress if m.partition == partition and m.attempt == 0]
        second = [m for m in progress if m.partition == partition and m.attempt == 1]
        assert not any(m.done for m in first)
        assert 0 < first[-1].count <= 15
        assert first[-1].busy_s >= 16 * 0.015, "work that came to nothing was work all the same"
        assert (second[-1].done, second[-1].count) == (True, 20)
        assert {m.first for m in first} == {m.first for m in second} == {0}
        assert {m.task for m in first}.isdisjoint(m.task for m in second)


def test_a_restart_repeats_work_under_a_new_run(spark: "SparkSession", place: Callable[[int], Place]) -> None:
    here = place(1)
    here.produce({0: 300})
    settings = here.settings(work=Work(default_s=0.05), progress="sync")
    with running(spark, settings) as query:
        deadline = time.monotonic() + 60
        while not any(message.count for message in here.progress()):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    with running(spark, here.settings(progress="sync")) as again:
        again.processAllAvailable()
    runs = {str(query.runId): [], str(again.runId): []}  # type: ignore[var-annotated]
    for message in here.progress():
        runs[message.run].append(message)
    before, after = runs.values()
    assert query.id == again.id
    assert not any(message.done for message in before)
    assert max(message.next for message in before) < 300, "stopped in the middle"
    assert (before[0].batch, before[0].first) == (after[0].batch, after[0].first) == (0, 0)
    assert max(message.next for message in before) > 0
    assert covered(after) == {0: Counter(range(300))}


def test_two_executors_report_and_the_command_ends_cleanly(place: Callable[[int], Place], tmp_path: Path) -> None:
    here = place(2)
    job = subprocess.Popen(
        [
            *(sys.executable, "-m", "spark_job", "--bootstrap-servers", here.servers),
            *("--pipeline", here.pipeline, "--topics", here.processing, "--result", here.result),
            *("--master", "local-cluster[2,1,1024]", "--cost", "default=0.05"),
            *("--jars", ",".join(str(jar) for jar in fetch(SPARK_CONNECTOR))),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    try:
        assert job.stdout is not None
        said = [job.stdout.readline(), job.stdout.readline()]
        assert said[0].endswith("is temporary, a restart begins anew\n")
        assert said[1].startswith("spillway job: query ")
        assert said[1].endswith(" runs\n")
        here.produce({0: 40, 1: 40})
        deadline = time.monotonic() + 90
        while len(here.results()) < 80:
            assert time.monotonic() < deadline
            assert job.poll() is None
            time.sleep(0.3)
        job.send_signal(signal.SIGTERM)
        out, err = job.communicate(timeout=60)
    finally:
        job.kill()
        job.wait()
    assert (job.returncode, out, err) == (0, "", "")
    assert list(tmp_path.glob("spillway-job-*")) == []
    progress = here.progress()
    assert covered(progress) == {0: Counter(range(40)), 1: Counter(range(40))}
    assert {message.slots for message in progress} == {2}
    # An executor has one core: tasks that overlap ran in two.
    ends = [message for message in progress if message.done]
    assert any(a.partition != b.partition and a.started_s < b.at_s and b.started_s < a.at_s for a in ends for b in ends)


def test_a_missing_topic_is_one_line(
    bootstrap_servers: str, fresh_name: FreshName, capsys: pytest.CaptureFixture[str]
) -> None:
    from spark_job.__main__ import main

    name = fresh_name("none")
    status = main(["--bootstrap-servers", bootstrap_servers, "--pipeline", "p", "--topics", name, "--result", name])
    assert status == 1
    assert capsys.readouterr().err.startswith(f"spillway: topic {name}, {name} does not exist at ")
