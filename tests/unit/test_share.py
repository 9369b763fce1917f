"""One budget split over partitions."""

import pytest

from controller.budget import UNLIMITED, Budget, Reason
from controller.share import split

TIGHT = Budget(rate=2.0, limit=4.0, cost=0.01, reason=Reason.TOO_SLOW)


def test_rates_of_all_partitions_add_up_to_the_pipelines() -> None:
    parts = split(TIGHT, {0: 3.0, 1: 1.0, 2: 0.0}, slot_limit=UNLIMITED, guarded=True)
    assert sum(part.rate for part in parts.values()) == pytest.approx(2.0)
    assert sum(part.limit for part in parts.values()) == pytest.approx(4.0)


def test_a_partition_gets_its_share_of_the_offered_load() -> None:
    parts = split(TIGHT, {0: 3.0, 1: 1.0}, slot_limit=UNLIMITED, guarded=True)
    assert parts[0].rate > 2.5 * parts[1].rate


def test_a_partition_that_was_silent_finds_something_when_it_wakes() -> None:
    parts = split(TIGHT, {0: 3.0, 1: 0.0}, slot_limit=UNLIMITED, guarded=True)
    assert parts[1].rate > 0
    assert parts[1].limit > 0


def test_a_hot_partition_may_hold_what_one_slot_finishes_in_time() -> None:
    parts = split(TIGHT, {0: 3.0, 1: 0.0, 2: 0.0, 3: 0.0}, slot_limit=1.3, guarded=True)
    assert parts[0].limit == 1.3


def test_while_all_fits_a_guarded_partition_gets_an_even_share_at_least() -> None:
    fits = Budget(rate=2.0, limit=4.0, cost=0.01, reason=Reason.ON_TARGET)
    parts = split(fits, {0: 1.0, 1: 0.0}, slot_limit=UNLIMITED, guarded=True)
    assert all(part.rate >= 1.0 and part.limit >= 2.0 for part in parts.values())


def test_an_unguarded_partition_always_has_its_rate() -> None:
    fits = Budget(rate=2.0, limit=4.0, cost=0.01, reason=Reason.ON_TARGET)
    parts = split(fits, {0: 1.0, 1: 0.0}, slot_limit=UNLIMITED, guarded=False)
    assert sum(part.rate for part in parts.values()) == pytest.approx(2.0)


def test_no_partitions_no_budgets() -> None:
    assert split(TIGHT, {}, slot_limit=1.0, guarded=True) == {}
