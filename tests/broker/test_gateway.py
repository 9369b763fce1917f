"""The gateway as its users run it: `spillway run` against a real broker, judged by what is in the topics."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from embedded.pipeline import Pipeline, wait_until
from embedded.verifier import verify
from protocol.encoding import Refused, decode, encode
from protocol.messages import BudgetMessage, Progress
from protocol.topics import ARRIVED, ERROR, ORIGIN, REASON, feedback_key

PASS_THROUGH = {"controller": {"load_manager": "none"}}
PATIENCE = 60.0

Make = Callable[..., Pipeline]


@pytest.fixture
def make(bootstrap_servers: str, fresh_name: Callable[[str], str], tmp_path: Path) -> Iterator[Make]:
    made: list[Pipeline] = []

    def pipeline(settings: dict[str, Any] | None = None, *, partitions: int = 2, gateway: bool = True) -> Pipeline:
        name = fresh_name("gw")
        made.append(
            Pipeline(bootstrap_servers, name=name, folder=tmp_path / name, partitions=partitions, settings=settings)
        )
        if gateway:
            made[-1].start_gateway()
            made[-1].await_gateways()
        return made[-1]

    yield pipeline
    for each in made:
        each.stop()


def produce(pipeline: Pipeline, topic: str, records: Sequence[dict[str, Any]], **properties: Any) -> None:
    producer = Producer({**pipeline.settings.client_properties(), "enable.idempotence": True, **properties})
    for record in records:
        producer.produce(topic, **record)
    assert producer.flush(30) == 0


def read(pipeline: Pipeline, topic: str) -> list[Message]:
    """All that the topic holds now, partition by partition."""
    consumer = Consumer({**pipeline.settings.client_properties(), "group.id": "reader", "enable.auto.commit": False})
    found: list[Message] = []
    try:
        for partition in consumer.list_topics(topic, timeout=10).topics[topic].partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
            consumer.assign([TopicPartition(topic, partition, low)])
            while low < high:
                message = consumer.poll(10)
                assert message is not None, f"{topic} went silent at {low} of {high}"
                assert message.error() is None
                found.append(message)
                low = message.offset() + 1
    finally:
        consumer.close()
    return found


def await_count(pipeline: Pipeline, topic: str, count: int) -> None:
    wait_until(lambda: pipeline.count(topic) >= count, within=PATIENCE, what=f"{count} records did not reach {topic}")


def test_an_admitted_record_keeps_key_value_timestamp_partition_headers_and_order(make: Make) -> None:
    pipeline = make(PASS_THROUGH)
    records: list[dict[str, Any]] = [
        {"key": f"k{i % 7}".encode(), "value": f"v{i}".encode(), "partition": i % 2, "headers": [("h", b"1")]}
        for i in range(500)
    ]
    records += [
        {"key": None, "value": None, "partition": 0},
        {"key": b"", "value": b"", "partition": 0},
        {"key": b"k", "value": None, "partition": 1},
        {"key": b"k", "value": b"v", "partition": 1, "headers": [("a", b"1"), ("a", b"2"), ("null", None), ("", b"")]},
    ]
    produce(pipeline, pipeline.raw, records)
    await_count(pipeline, pipeline.processing, len(records))

    def seen(topic: str) -> list[tuple[Any, ...]]:
        return [
            (m.partition(), m.key(), m.value(), m.timestamp()[1], [h for h in m.headers() or [] if h[0] != ORIGIN])
            for m in read(pipeline, topic)
        ]

    assert seen(pipeline.processing) == seen(pipeline.raw)
    assert verify(_no_result(pipeline)).ok


def _no_result(pipeline: Pipeline) -> Any:
    """The pipeline's settings without a result topic: these tests run no job."""
    settings = pipeline.settings
    return settings.model_copy(update={"own_topics": settings.own_topics.model_copy(update={"result": None})})


def test_uncommitted_records_come_back_after_a_kill_and_none_is_lost(make: Make) -> None:
    pipeline = make({**PASS_THROUGH, "loop": {"commit_seconds": 3600}})
    produce(pipeline, pipeline.raw, [{"value": b"%d" % i, "partition": i % 2} for i in range(1_000)])
    await_count(pipeline, pipeline.processing, 500)
    pipeline.gateways[0].kill()
    produce(pipeline, pipeline.raw, [{"value": b"%d" % i, "partition": i % 2} for i in range(100)])
    pipeline.start_gateway()
    wait_until(lambda: verify(_no_result(pipeline)).missing == 0, within=PATIENCE, what="some records found no outcome")
    report = verify(_no_result(pipeline))
    assert report.ok, report.complaints
    assert report.raw == 1_100


def test_a_gateway_told_to_stop_drains_and_its_successor_repeats_nothing(make: Make) -> None:
    pipeline = make(PASS_THROUGH)
    produce(pipeline, pipeline.raw, [{"value": b"%d" % i, "partition": i % 2} for i in range(2_000)])
    await_count(pipeline, pipeline.processing, 200)
    assert pipeline.gateways[0].stop() == 0
    produce(pipeline, pipeline.raw, [{"value": b"%d" % i, "partition": i % 2} for i in range(300)])
    pipeline.start_gateway()
    await_count(pipeline, pipeline.processing, 2_300)
    report = verify(_no_result(pipeline))
    assert report.ok, report.complaints
    assert (report.raw, report.admitted, report.repeated) == (2_300, 2_300, 0)


def test_what_cannot_be_read_is_parked_with_its_error_and_its_origin(make: Make) -> None:
    pipeline = make({**PASS_THROUGH, "key": {"source": "json", "path": "user.id"}})
    produce(
        pipeline,
        pipeline.raw,
        [
            {"value": b'{"user": {"id": 1}}', "partition": 0},
            {"value": b"not json", "key": b"k", "partition": 0, "headers": [("mine", b"1")]},
            {"value": None, "partition": 0},
            {"value": b'{"other": 1}', "partition": 0},
        ],
    )
    await_count(pipeline, pipeline.processing, 3)
    await_count(pipeline, f"{pipeline.name}.parked", 1)
    (parked,) = read(pipeline, f"{pipeline.name}.parked")
    headers = dict(parked.headers())
    assert (parked.key(), parked.value(), headers["mine"]) == (b"k", b"not json", b"1")
    assert b"not JSON" in headers[ERROR]
    assert headers[ORIGIN] == f"{pipeline.raw}/0/1".encode()
    assert verify(_no_result(pipeline)).ok


def test_a_ten_megabyte_record_passes_where_topics_allow_it_and_is_parked_where_not(make: Make) -> None:
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    pipeline = make(PASS_THROUGH, gateway=False)
    admin = AdminClient(pipeline.settings.client_properties())

    def allow(topic: str, size: int) -> None:
        entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        for answer in admin.incremental_alter_configs([resource]).values():
            answer.result(30)

    allow(pipeline.raw, 20_000_000)
    large = b"x" * 10_000_000
    sizes = {"message.max.bytes": 20_000_000, "compression.type": "none"}
    records = [{"value": large, "partition": 0}, {"value": b"small", "partition": 0}]
    produce(pipeline, pipeline.raw, records, **sizes)
    pipeline.start_gateway(SPILLWAY_KAFKA__PROPERTIES='{"compression.type": "none"}')
    await_count(pipeline, f"{pipeline.name}.parked", 1)
    await_count(pipeline, pipeline.processing, 1)
    (parked,) = read(pipeline, f"{pipeline.name}.parked")
    assert b"without its value" in dict(parked.headers())[ERROR]
    assert dict(parked.headers())[ORIGIN] == f"{pipeline.raw}/0/0".encode()

    allow(pipeline.processing, 20_000_000)
    produce(pipeline, pipeline.raw, [{"value": large, "partition": 1}], **sizes)
    await_count(pipeline, pipeline.processing, 2)
    assert large in [m.value() for m in read(pipeline, pipeline.processing)]


def test_before_any_feedback_admission_is_bounded_and_the_rest_is_shed_with_its_reason(make: Make) -> None:
    pipeline = make({"controller": {"initial_records": 50, "trickle_per_second": 0.1}})
    produce(pipeline, pipeline.raw, [{"value": b"%d" % i, "partition": i % 2} for i in range(2_000)])
    shed = f"{pipeline.name}.shed"
    wait_until(
        lambda: pipeline.count(shed) + pipeline.count(pipeline.processing) >= 2_000,
        within=PATIENCE,
        what="records without an outcome",
    )
    assert pipeline.count(pipeline.processing) <= 60
    assert {dict(m.headers())[REASON] for m in read(pipeline, shed)} == {b"cold_start"}
    assert verify(_no_result(pipeline)).ok


def budgets(pipeline: Pipeline) -> list[BudgetMessage]:
    found = []
    for message in read(pipeline, f"{pipeline.name}.control"):
        with contextlib.suppress(Refused):
            found.append(decode(message.value()))
    return [message for message in found if isinstance(message, BudgetMessage)]


def progress(pipeline: Pipeline, *, count: int, batch: int = 0, partition: int = 0) -> Progress:
    return Progress(
        query="q",
        run="r",
        batch=batch,
        topic=pipeline.processing,
        partition=partition,
        task=batch * 10 + partition,
        attempt=0,
        first=0,
        next=count,
        count=count,
        received=count,
        busy_s=count * 0.01,
        response_sum_s=count * 0.1,
        response_max_s=0.1,
        responses={"1": count},
        slots=4,
        started_s=1.0,
        at_s=2.0,
        done=True,
    )


def test_feedback_ends_the_cold_start_and_silence_after_it_degrades_as_configured(make: Make) -> None:
    pipeline = make({"feedback": {"hold_seconds": 2, "degrade": "closed"}})
    produce(pipeline, pipeline.raw, [{"value": b"x", "partition": 0} for _ in range(100)])
    await_count(pipeline, pipeline.processing, 100)
    message = progress(pipeline, count=40)
    produce(pipeline, f"{pipeline.name}.feedback", [{"key": feedback_key(message), "value": encode(message)}])

    def reasons() -> list[str]:
        return [budget.reason for budget in budgets(pipeline)]

    wait_until(lambda: "on_target" in reasons(), within=PATIENCE, what="the law did not take over")
    wait_until(lambda: reasons()[-1] == "no_feedback", within=PATIENCE, what="silence went unnoticed")
    assert budgets(pipeline)[-1].cost_s == pytest.approx(0.01)
    assert "no feedback for 2 s" in pipeline.gateways[0].log.read_text()


def test_foreign_and_corrupt_messages_are_refused_and_change_nothing(make: Make) -> None:
    pipeline = make()
    other = progress(pipeline, count=40)
    junk = [b"", b"{", b"[]", b'{"kind":"progress"}', encode(other).replace(b'"v":1', b'"v":9'), b"\x00\xff"]
    produce(pipeline, f"{pipeline.name}.feedback", [{"value": value} for value in junk])
    produce(pipeline, f"{pipeline.name}.control", [{"key": b"budget/x", "value": value} for value in junk])
    elsewhere = encode(other).replace(pipeline.processing.encode(), b"somebody-elses-topic")
    produce(pipeline, f"{pipeline.name}.feedback", [{"value": elsewhere}])
    wait_until(lambda: "refused a message" in pipeline.gateways[0].log.read_text(), within=PATIENCE, what="no refusal")
    produce(pipeline, pipeline.raw, [{"value": b"x", "partition": 0} for _ in range(10)])
    await_count(pipeline, pipeline.processing, 10)
    assert {budget.reason for budget in budgets(pipeline)} == {"cold_start"}
    assert pipeline.gateways[0].alive()


def test_an_implausible_timestamp_travels_unchanged_and_its_arrival_in_a_header(
    make: Make, bootstrap_servers: str
) -> None:
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    pipeline = make(PASS_THROUGH, gateway=False)
    entry = ConfigEntry("message.timestamp.type", "CreateTime", incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    resource = ConfigResource(ResourceType.TOPIC, pipeline.raw, incremental_configs=[entry])
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result(30)
    pipeline.apply_topics()
    week_ago = round(time.time() * 1000) - 6 * 86_400_000
    produce(pipeline, pipeline.raw, [{"value": b"old", "partition": 0, "timestamp": week_ago}])
    produce(pipeline, pipeline.raw, [{"value": b"new", "partition": 0}])
    pipeline.start_gateway()
    await_count(pipeline, pipeline.processing, 2)
    old, new = read(pipeline, pipeline.processing)
    assert old.timestamp()[1] == week_ago
    assert int(dict(old.headers())[ARRIVED]) > week_ago
    assert ARRIVED not in dict(new.headers())


def test_several_raw_topics_each_go_to_their_own_processing_topic(make: Make, fresh_name: Callable[[str], str]) -> None:
    first = make(PASS_THROUGH, gateway=False)
    second = make(PASS_THROUGH, gateway=False)
    routes = [{"raw": p.raw, "processing": p.processing} for p in (first, second)]
    import yaml  # type: ignore[import-untyped]

    tree = yaml.safe_load(first.config.read_text())
    first.config.write_text(yaml.safe_dump({**tree, "topics": routes}))
    first.start_gateway()
    first.await_gateways()
    produce(first, first.raw, [{"value": b"a", "partition": 0}])
    produce(first, second.raw, [{"value": b"b", "partition": 1}])
    await_count(first, first.processing, 1)
    await_count(first, second.processing, 1)
    assert [m.value() for m in read(first, first.processing)] == [b"a"]
    assert [m.value() for m in read(first, second.processing)] == [b"b"]


def test_a_second_gateway_takes_partitions_over_and_nothing_is_lost(make: Make) -> None:
    pipeline = make(PASS_THROUGH, partitions=4)
    produce(pipeline, pipeline.raw, [{"value": b"%d" % i, "partition": i % 4} for i in range(1_000)])
    pipeline.start_gateway()
    pipeline.await_gateways()
    produce(pipeline, pipeline.raw, [{"value": b"%d" % i, "partition": i % 4} for i in range(1_000)])
    await_count(pipeline, pipeline.processing, 2_000)
    pipeline.gateways[0].stop()
    produce(pipeline, pipeline.raw, [{"value": b"%d" % i, "partition": i % 4} for i in range(1_000)])
    await_count(pipeline, pipeline.processing, 3_000)
    report = verify(_no_result(pipeline))
    assert report.ok, report.complaints
    assert report.raw == report.admitted == 3_000
