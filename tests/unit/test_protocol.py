"""The messages on our topics: what is ours comes back as it was, what is not is refused with a reason."""

import numpy as np
import orjson
import pytest

from protocol.encoding import MAX_MESSAGE_BYTES, Refused, decode, encode
from protocol.histogram import bucket, lower_bound, quantile
from protocol.messages import BatchStarted, BudgetMessage, Claim, Message, Progress, Report
from protocol.topics import budget_key, feedback_key, origin, parse_origin, report_key

TASK = {"query": "q", "run": "r", "batch": 3, "topic": "orders", "partition": 1, "task": 7, "attempt": 0, "slots": 4}
PROGRESS = Progress(
    **TASK,
    first=10,
    next=20,
    count=10,
    received=40,
    busy_s=0.5,
    response_sum_s=3.0,
    response_max_s=0.4,
    responses={"12": 10},
    started_s=1.0,
    at_s=2.0,
    done=False,
)
STARTED = BatchStarted(**TASK, first=10, received=40, started_s=1.0)
REPORT = Report(
    replica="a",
    incarnation="i",
    topic="raw",
    partition=0,
    arrived=9,
    admitted=5,
    parked=1,
    shed={"over_budget": 3},
    admitted_work_s=0.5,
    outstanding=2,
    outstanding_work_s=0.2,
    delivered=-1,
    at_s=1.0,
)
BUDGET = BudgetMessage(
    epoch=1,
    sequence=2,
    topic="raw",
    partition=0,
    rate=None,
    offered=1.0,
    limit_s=2.0,
    deadline_s=None,
    cost_s=0.01,
    period_s=0.5,
    reason="on_target",
    at_s=1.0,
)
CLAIM = Claim(replica="a", at_s=1.0)
ALL: list[Message] = [PROGRESS, STARTED, REPORT, BUDGET, CLAIM]


@pytest.mark.parametrize("message", ALL, ids=lambda m: m.kind)
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    assert decode(encode(message)) == message


@pytest.mark.parametrize("message", ALL, ids=lambda m: m.kind)
@pytest.mark.parametrize("change", [{"v": 2}, {"kind": "other"}, {"surprise": 1}, {"at_s": None, "started_s": None}])
def test_another_version_kind_or_shape_is_refused(message: Message, change: dict[str, object]) -> None:
    fields = orjson.loads(encode(message)) | change
    with pytest.raises(Refused):
        decode(orjson.dumps(fields))


@pytest.mark.parametrize(
    "payload",
    [None, b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"kind":"progress"}', b" " * (MAX_MESSAGE_BYTES + 1)],
    ids=["null", "empty", "torn", "list", "json null", "not text", "incomplete", "huge"],
)
def test_what_is_no_message_is_refused_and_never_raises_anything_else(payload: bytes | None) -> None:
    with pytest.raises(Refused):
        decode(payload)


@pytest.mark.parametrize(
    ("field", "value"),
    [("count", -1), ("count", 1.5), ("busy_s", "fast"), ("busy_s", -1.0), ("topic", ""), ("slots", 0)],
)
def test_a_value_out_of_range_is_refused_by_name(field: str, value: object) -> None:
    fields = orjson.loads(encode(PROGRESS)) | {field: value}
    with pytest.raises(Refused, match=field):
        decode(orjson.dumps(fields))


def test_keys_are_those_of_the_architecture() -> None:
    assert feedback_key(PROGRESS) == b"q/orders-1/progress"
    assert feedback_key(STARTED) == b"q/orders-1/batch"
    assert report_key(REPORT) == b"raw-0"
    assert budget_key(BUDGET) == b"budget/raw-0"


def test_an_origin_comes_back_as_it_was_even_if_the_topic_has_slashes() -> None:
    assert parse_origin(origin("a/b", 3, 14)) == ("a/b", 3, 14)
    with pytest.raises(ValueError):
        parse_origin(b"nonsense")


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 0.0005, 0.001, 0.0011, 0.1, 1.6, 2.0, 3_600.0])
def test_a_response_time_lies_in_its_bucket(seconds: float) -> None:
    index = bucket(seconds)
    assert lower_bound(index) <= max(0.0, seconds) <= lower_bound(index + 1) * (1 + 1e-9)


def test_a_quantile_of_the_histogram_is_within_two_percent_of_the_exact_one() -> None:
    times = np.random.default_rng(1).gamma(4.0, 0.4, 20_000)
    counts: dict[int, int] = {}
    for time in times:
        counts[bucket(time)] = counts.get(bucket(time), 0) + 1
    for share in (0.05, 0.5, 0.95):
        assert quantile(counts, share) == pytest.approx(np.quantile(times, share), rel=0.02)
    assert quantile({}, 0.5) is None
