import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from typer import Typer
from typer.testing import CliRunner

from command_line.verify import verify as command
from embedded.errors import EmbeddedError
from embedded.measure import measure, read
from embedded.verifier import Verification, verify
from gateway.settings import Settings
from protocol.topics import origin

Names = Callable[[str], str]


@dataclass(frozen=True, kw_only=True)
class Copy:
    """A record as a topic holds it; ``of`` is the raw offset that its header names."""

    of: int | None
    value: bytes | None
    key: bytes | None = b"default:1"
    partition: int = 0
    at: int = 1_700_000_000_000
    reason: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = (("trace", b"abc"), ("empty", None))
    origin_of: str | None = None


@dataclass(kw_only=True)
class Pipeline:
    """Topics of one pipeline, filled by hand."""

    servers: str
    name: str
    stamped: bool = False
    partitions: int = 2

    def __post_init__(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        append_time = {"message.timestamp.type": "LogAppendTime"} if self.stamped else {}
        topics = [
            NewTopic(self.raw, self.partitions, 1, config=append_time),
            NewTopic(f"{self.name}-in", self.partitions, 1),
            NewTopic(f"{self.name}-out", 1, 1, config=append_time),
            NewTopic(f"{self.name}.shed", self.partitions, 1),
            NewTopic(f"{self.name}.parked", self.partitions, 1),
        ]
        for future in admin.create_topics(topics, request_timeout=30).values():
            future.result(30)

    @property
    def raw(self) -> str:
        return f"{self.name}-raw"

    def settings(self, *, result: bool = False, keep: str = "all") -> Settings:
        return Settings.model_validate(self.tree(result=result, keep=keep))

    def tree(self, *, result: bool = False, keep: str = "all") -> dict[str, object]:
        return {
            "pipeline": self.name,
            "topics": [{"raw": self.raw, "processing": f"{self.name}-in"}],
            "origin": True,
            "shed": {"keep": keep},
            "kafka": {"bootstrap_servers": self.servers},
            "own_topics": {"result": f"{self.name}-out"} if result else {},
        }

    def write(self, topic: str, copies: Iterable[Copy], producer: Producer | None = None) -> None:
        client = producer or Producer({"bootstrap.servers": self.servers, "linger.ms": 0, "enable.idempotence": True})
        refused: list[object] = []
        for copy in copies:
            ours: list[tuple[str, bytes | None]] = []
            if copy.of is not None:
                ours.append(("spillway.origin", origin(copy.origin_of or self.raw, copy.partition, copy.of)))
            if copy.reason is not None:
                ours.append(("spillway.reason", copy.reason))
            partition = 0 if topic.endswith("-out") else copy.partition
            client.produce(topic, copy.value, copy.key, partition, timestamp=copy.at, headers=[*copy.headers, *ours])
        if producer is None:
            assert client.flush(30) == 0
            assert not refused

    def write_raw(self, records: Iterable[Copy]) -> None:
        self.write(self.raw, [replace(record, of=None) for record in records])

    def admit(self, records: Iterable[Copy]) -> None:
        self.write(f"{self.name}-in", records)

    def shed(self, records: Iterable[Copy], reason: bytes = b"over_budget") -> None:
        self.write(f"{self.name}.shed", [replace(record, reason=reason) for record in records])

    def park(self, records: Iterable[Copy]) -> None:
        self.write(f"{self.name}.parked", records)

    def answer(self, records: Iterable[Copy]) -> None:
        self.write(f"{self.name}-out", records)


@pytest.fixture
def pipeline(bootstrap_servers: str, fresh_name: Names) -> Pipeline:
    return Pipeline(servers=bootstrap_servers, name=fresh_name("verify"))


def records(count: int, partition: int = 0) -> list[Copy]:
    return [Copy(of=i, value=b"value %d" % i, partition=partition, at=1_700_000_000_000 + i) for i in range(count)]


def test_a_clean_run_is_ok(pipeline: Pipeline) -> None:
    for partition in (0, 1):
        made = records(10, partition)
        pipeline.write_raw(made)
        pipeline.admit(made[:6])
        pipeline.shed(made[6:8])
        pipeline.shed(made[8:9], b"unlucky")
        pipeline.park(made[9:])
        pipeline.answer(made[:6])
    found = verify(pipeline.settings(result=True), exactly_once=True)
    assert found.ok, found.complaints
    assert (found.raw, found.admitted, found.parked, found.results) == (20, 12, 2, 12)
    assert found.shed == {"over_budget": 4, "unlucky": 2}
    assert not found.examples


def test_an_empty_pipeline_is_ok(pipeline: Pipeline) -> None:
    assert verify(pipeline.settings(result=True)).ok


def test_a_lost_record_is_found_and_named(pipeline: Pipeline) -> None:
    made = records(5)
    pipeline.write_raw(made)
    pipeline.admit([*made[:3], made[4]])
    found = verify(pipeline.settings())
    assert not found.ok
    assert found.missing == 1
    assert found.examples["missing"] == (f"{pipeline.raw}/0/3",)


def test_missing_outcomes_point_at_a_shed_topic_that_is_not_kept(pipeline: Pipeline) -> None:
    pipeline.write_raw(records(2))
    found = verify(pipeline.settings(keep="none"))
    assert any("shed.keep: all" in text for text in found.complaints)


def test_repeats_after_a_crash_are_counted_and_fail_only_exactly_once(pipeline: Pipeline) -> None:
    made = records(6)
    pipeline.write_raw(made)
    pipeline.admit([*made[:4], *made[2:]])
    found = verify(pipeline.settings())
    assert found.ok, found.complaints
    assert (found.repeated, found.admitted, found.disordered) == (2, 6, 0)
    assert not verify(pipeline.settings(), exactly_once=True).ok


def test_a_record_that_is_both_admitted_and_shed_is_repeated(pipeline: Pipeline) -> None:
    made = records(3)
    pipeline.write_raw(made)
    pipeline.admit(made)
    pipeline.shed(made[1:2])
    assert verify(pipeline.settings()).repeated == 1


def test_decisions_that_differ_after_a_crash_are_no_disorder(pipeline: Pipeline) -> None:
    made = records(6)
    pipeline.write_raw(made)
    # First 0 and 3 were admitted and 1, 2 shed; after the crash the gateway went back to 1.
    pipeline.admit([made[0], made[3], made[1], made[4], made[5]])
    pipeline.shed([made[1], made[2], made[2], made[3]])
    found = verify(pipeline.settings())
    assert found.disordered == 0
    assert found.repeated == 3


def test_swapped_records_are_disordered(pipeline: Pipeline) -> None:
    made = records(5)
    pipeline.write_raw(made)
    pipeline.admit([made[0], made[2], made[1], made[3], made[4]])
    found = verify(pipeline.settings())
    assert not found.ok
    assert found.disordered == 1
    assert found.examples["disordered"] == (f"{pipeline.raw}/0/1",)


def test_partitions_may_interleave_without_disorder(pipeline: Pipeline) -> None:
    left, right = records(4, 0), records(4, 1)
    pipeline.write_raw([*left, *right])
    pipeline.admit([right[0], left[0], left[1], right[1], right[2], left[2], left[3], right[3]])
    assert verify(pipeline.settings(), exactly_once=True).ok


@pytest.mark.parametrize(
    "change",
    [
        {"value": b"other"},
        {"value": None},
        {"key": b"other"},
        {"key": None},
        {"at": 1_600_000_000_000},
        {"headers": (("trace", b"abc"),)},
        {"headers": (("empty", None), ("trace", b"abc"))},
        {"headers": (("trace", b"abd"), ("empty", None))},
    ],
    ids=str,
)
def test_an_altered_record_is_found(pipeline: Pipeline, change: dict[str, object]) -> None:
    made = records(3)
    pipeline.write_raw(made)
    pipeline.admit([made[0], replace(made[1], **change), made[2]])  # type: ignore[arg-type]
    found = verify(pipeline.settings())
    assert not found.ok
    assert found.altered == 1
    assert found.examples["altered"] == (f"{pipeline.raw}/0/1",)


def test_nulls_and_absent_headers_pass_as_unchanged(pipeline: Pipeline) -> None:
    made = [Copy(of=0, value=None), Copy(of=1, value=b"", key=None, headers=()), Copy(of=2, value=b"", key=b"")]
    pipeline.write_raw(made)
    pipeline.admit(made)
    assert verify(pipeline.settings()).ok


def test_a_record_in_another_partition_is_misplaced(pipeline: Pipeline) -> None:
    made = records(2)
    pipeline.write_raw(made)
    pipeline.admit(made[:1])
    producer = Producer({"bootstrap.servers": pipeline.servers})
    stamp = [*made[1].headers, ("spillway.origin", origin(pipeline.raw, 0, 1))]
    producer.produce(f"{pipeline.name}-in", made[1].value, made[1].key, 1, timestamp=made[1].at, headers=stamp)
    assert producer.flush(30) == 0
    found = verify(pipeline.settings())
    assert not found.ok
    assert (found.misplaced, found.altered) == (1, 0)


@pytest.mark.parametrize(
    "invented", [Copy(of=99, value=b"x"), Copy(of=0, value=b"x", origin_of="elsewhere"), Copy(of=-1, value=b"x")]
)
def test_an_origin_that_is_no_raw_record_is_unknown(pipeline: Pipeline, invented: Copy) -> None:
    made = records(2)
    pipeline.write_raw(made)
    pipeline.admit([*made, invented])
    found = verify(pipeline.settings())
    assert not found.ok
    assert found.unknown == 1


def test_admitted_records_without_an_origin_name_the_setting(pipeline: Pipeline) -> None:
    made = records(2)
    pipeline.write_raw(made)
    pipeline.admit([made[0], replace(made[1], of=None)])
    found = verify(pipeline.settings())
    assert not found.ok
    assert found.unstamped == {f"{pipeline.name}-in": 1}
    assert any("origin: on" in text for text in found.complaints)


def test_an_origin_that_the_producer_had_sent_does_not_hide_ours(pipeline: Pipeline) -> None:
    chained = (("spillway.origin", b"upstream/0/7"),)
    made = [replace(record, headers=chained) for record in records(2)]
    pipeline.write_raw(made)
    pipeline.admit(made)
    assert verify(pipeline.settings()).ok


def test_results_are_missing_repeated_or_not_admitted(pipeline: Pipeline) -> None:
    made = records(5)
    pipeline.write_raw(made)
    pipeline.admit(made[:4])
    pipeline.shed(made[4:])
    pipeline.answer([made[0], made[1], made[1], made[2], made[4]])
    found = verify(pipeline.settings(result=True))
    assert not found.ok
    assert (found.results_missing, found.results_repeated, found.results_unadmitted) == (1, 1, 1)
    assert found.examples["results_missing"] == (f"{pipeline.raw}/0/3",)


def test_repeated_results_alone_are_ok(pipeline: Pipeline) -> None:
    made = records(2)
    pipeline.write_raw(made)
    pipeline.admit(made)
    pipeline.answer([*made, *made])
    found = verify(pipeline.settings(result=True))
    assert found.ok
    assert found.results_repeated == 2


def test_transaction_markers_and_aborted_records_are_neither_outcomes_nor_gaps(pipeline: Pipeline) -> None:
    made = records(4)
    transactional = Producer({"bootstrap.servers": pipeline.servers, "transactional.id": pipeline.name})
    transactional.init_transactions(30)

    def transaction(topic: str, copies: list[Copy], *, commit: bool) -> None:
        transactional.begin_transaction()
        pipeline.write(topic, copies, transactional)
        transactional.flush(30)
        (transactional.commit_transaction if commit else transactional.abort_transaction)(30)

    def moved(record: Copy, offset: int) -> Copy:
        return replace(record, of=offset)

    # Raw: 0, 1, marker, two aborted, marker, 6, 7, marker.
    for batch, commit in ((made[:2], True), (made[:2], False), (made[2:], True)):
        transaction(pipeline.raw, [replace(record, of=None) for record in batch], commit=commit)
    processing = f"{pipeline.name}-in"
    transaction(processing, made[:2], commit=False)
    transaction(processing, made[:2], commit=True)
    transaction(processing, [moved(made[2], 6), moved(made[3], 7)], commit=True)
    transaction(f"{pipeline.name}.shed", made[:1], commit=False)
    found = verify(pipeline.settings(), exactly_once=True)
    assert found.ok, found.complaints
    assert (found.raw, found.admitted) == (4, 4)


def test_what_arrives_after_the_start_is_not_judged(pipeline: Pipeline) -> None:
    made = records(6)
    pipeline.write_raw(made[:3])
    pipeline.admit(made[:3])
    grown: list[str] = []

    def grow(what: str, *_: int) -> None:
        """While the verifier reads, three more arrive: one admitted, two on their way."""
        if what == "raw" and not grown:
            grown.append(what)
            pipeline.write_raw(made[3:])
            pipeline.admit(made[3:4])

    found = verify(pipeline.settings(), progress=grow)
    assert found.ok, found.complaints
    assert (found.raw, found.later) == (3, 1)


def test_settling_waits_for_what_is_on_its_way(pipeline: Pipeline) -> None:
    made = records(4)
    pipeline.write_raw(made)
    pipeline.admit(made[:2])
    pipeline.answer(made[:2])
    seen: list[str] = []

    def finish(what: str, *_: int) -> None:
        """The rest comes only after the outcomes were read once."""
        seen.append(what)
        if seen.count("outcomes") == 1 and what == "outcomes":
            pipeline.admit(made[2:])
            pipeline.answer(made[2:])

    found = verify(pipeline.settings(result=True), settle_seconds=30, progress=finish)
    assert found.ok, found.complaints
    assert (found.admitted, found.results) == (4, 4)


def test_until_committed_what_the_gateway_has_not_taken_is_not_judged(pipeline: Pipeline) -> None:
    from confluent_kafka import Consumer, TopicPartition

    made = records(4)
    pipeline.write_raw(made)
    pipeline.admit(made[:3])
    group = Consumer({"bootstrap.servers": pipeline.servers, "group.id": pipeline.name})
    group.commit(offsets=[TopicPartition(pipeline.raw, 0, 3)], asynchronous=False)
    group.close()
    assert verify(pipeline.settings()).missing == 1
    found = verify(pipeline.settings(), until_committed=True)
    assert found.ok, found.complaints
    assert found.raw == 3


def test_a_missing_topic_is_one_line(bootstrap_servers: str, fresh_name: Names) -> None:
    name = fresh_name("absent")
    settings = Settings.model_validate(
        {
            "pipeline": name,
            "topics": [{"raw": f"{name}-raw", "processing": f"{name}-in"}],
            "kafka": {"bootstrap_servers": bootstrap_servers},
        }
    )
    with pytest.raises(EmbeddedError, match=f"topic {name}-raw does not exist"):
        verify(settings)


@pytest.mark.parametrize("lost", [0, 1])
def test_the_command_ends_with_the_verdict(pipeline: Pipeline, tmp_path: Path, lost: int) -> None:
    made = records(3)
    pipeline.write_raw(made)
    pipeline.admit(made[: 3 - lost])
    path = tmp_path / "settings.yaml"
    path.write_text(yaml.safe_dump(pipeline.tree()))
    app = Typer()
    app.command()(command)
    shown = CliRunner().invoke(app, ["--config", str(path)])
    plain = CliRunner().invoke(app, ["--config", str(path), "--json", "--exactly-once", "--raw-until-now"])
    assert shown.exit_code == plain.exit_code == lost
    assert "raw records" in shown.stdout
    assert json.loads(plain.stdout)["missing"] == lost
    assert shown.stderr.count("spillway: ") == lost


def test_a_report_without_faults_has_no_complaints() -> None:
    found = Verification(
        exactly_once=True,
        raw=1,
        admitted=1,
        shed={},
        parked=0,
        results=None,
        missing=0,
        repeated=0,
        disordered=0,
        misplaced=0,
        altered=0,
        unknown=0,
        unstamped={},
        results_missing=0,
        results_repeated=0,
        results_unadmitted=0,
        later=5,
        expired=3,
    )
    assert found.ok


def test_measuring_joins_results_with_the_arrival_of_their_raw_record(
    bootstrap_servers: str, fresh_name: Names
) -> None:
    pipeline = Pipeline(servers=bootstrap_servers, name=fresh_name("measure"), stamped=True)
    names = ["calm", "calm", "surge", "surge"]
    made = [
        replace(record, value=json.dumps({"phase": name}).encode())
        for record, name in zip(records(4), names, strict=True)
    ]
    pipeline.write_raw(made)
    pipeline.answer([made[0], made[1], made[3], made[3]])
    samples = read(pipeline.settings().client_properties(), raw=[pipeline.raw], result=f"{pipeline.name}-out")
    found = measure(samples, target_s=30.0)
    assert samples.names == ("calm", "surge")
    assert (found.phases["calm"].count, found.phases["calm"].loss) == (2, 0.0)
    assert (found.phases["surge"].count, found.phases["surge"].loss) == (1, 0.5)
    assert found.all.delayed == 0


def test_measuring_refuses_timestamps_of_producers(pipeline: Pipeline) -> None:
    pipeline.write_raw(records(1))
    with pytest.raises(EmbeddedError, match="LogAppendTime"):
        read(pipeline.settings().client_properties(), raw=[pipeline.raw], result=f"{pipeline.name}-out")
