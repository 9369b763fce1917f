"""Where a record's shedding key is, and when the record arrived."""

import numpy as np
import pytest

from gateway.arrival import arrivals
from gateway.keys import Unreadable, key_reader
from gateway.settings import ArrivalSettings, KeySettings

NOW = 1_000_000.0


def test_the_record_key_is_the_default() -> None:
    read = key_reader(KeySettings())
    assert read(b"k", b"v", None) == b"k"
    assert read(None, b"v", None) is None


def test_a_header_is_found_by_name_and_may_be_missing() -> None:
    read = key_reader(KeySettings(source="header", name="tenant"))
    assert read(b"k", b"v", [("other", b"1"), ("tenant", b"a")]) == b"a"
    assert read(b"k", b"v", None) is None
    assert read(b"k", b"v", [("tenant", None)]) is None


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (b'{"user": {"id": "a"}}', b"a"),
        (b'{"user": {"id": 7}}', b"7"),
        (b'{"user": {"id": null}}', None),
        (b'{"user": 3}', None),
        (b"[1, 2]", None),
        (b'"text"', None),
        (b"", None),
        (None, None),
    ],
)
def test_a_json_path_finds_what_is_there_and_misses_what_is_not(value: bytes | None, key: bytes | None) -> None:
    assert key_reader(KeySettings(source="json", path="user.id"))(b"k", value, None) == key


def test_a_json_path_goes_through_lists() -> None:
    assert key_reader(KeySettings(source="json", path="$.a.1"))(None, b'{"a": [1, 2]}', None) == b"2"


def test_a_value_that_is_not_json_is_unreadable_or_without_a_key_as_configured() -> None:
    with pytest.raises(Unreadable, match="not JSON"):
        key_reader(KeySettings(source="json", path="a"))(None, b"not json", None)
    assert key_reader(KeySettings(source="json", path="a", unreadable="missing"))(None, b"not json", None) is None


def stamped(*seconds: float) -> np.ndarray:
    return np.array([round(s * 1000) for s in seconds], np.int64)


def test_stamps_of_the_broker_are_believed() -> None:
    found = arrivals(stamped(NOW - 90_000, NOW), by_broker=True, now=NOW, settings=ArrivalSettings())
    assert not found.doubted.any()
    assert found.seconds.tolist() == [NOW - 90_000, NOW]


@pytest.mark.parametrize("offset", [-7 * 86_400, -3_700, 3_600, 10])
def test_an_implausible_stamp_of_a_producer_is_replaced_by_the_poll_time(offset: float) -> None:
    found = arrivals(stamped(NOW + offset), by_broker=False, now=NOW, settings=ArrivalSettings())
    assert found.doubted.all()
    assert found.seconds.tolist() == [NOW]


@pytest.mark.parametrize("offset", [-3_500, -1.0, 0.0, 0.9])
def test_a_plausible_stamp_of_a_producer_is_believed(offset: float) -> None:
    found = arrivals(stamped(NOW + offset), by_broker=False, now=NOW, settings=ArrivalSettings())
    assert not found.doubted.any()


def test_a_record_without_a_timestamp_arrived_when_it_was_polled() -> None:
    found = arrivals(np.array([-1]), by_broker=False, now=NOW, settings=ArrivalSettings())
    assert found.seconds.tolist() == [NOW]
