import json

import numpy as np
import pytest

from embedded.measure import Samples, measure


def samples(*records: tuple[float, float | None, str]) -> Samples:
    """Records as arrival, response time (None: no result) and phase."""
    names = tuple(dict.fromkeys(phase for _, _, phase in records))
    return Samples(
        arrived_s=np.array([1000.0 + at for at, _, _ in records]),
        answered_s=np.array([np.nan if took is None else 1000.0 + at + took for at, took, _ in records]),
        phase=np.array([names.index(phase) for _, _, phase in records], dtype=np.int64),
        names=names,
    )


def test_violation_sums_and_overshoot_peaks_only_beyond_the_target() -> None:
    found = measure(samples((0, 1.0, "a"), (1, 2.5, "a"), (2, 5.0, "a")), target_s=2.0).all
    assert found.violation_s == pytest.approx(0.5 + 3.0)
    assert found.overshoot_s == pytest.approx(3.0)
    assert found.delayed == 2
    assert found.max_s == pytest.approx(5.0)


def test_a_response_at_the_target_is_not_delayed() -> None:
    assert measure(samples((0, 2.0, "a")), target_s=2.0).all.delayed == 0


def test_quantiles_and_mean_are_those_of_the_answered_records() -> None:
    records = [(i / 100, i / 100, "a") for i in range(101)]
    found = measure(samples(*records, (0, None, "a")), target_s=10).all
    assert (found.mean_s, found.p50_s, found.p95_s, found.p99_s) == pytest.approx((0.5, 0.5, 0.95, 0.99))


def test_loss_is_the_share_of_a_phase_without_results() -> None:
    found = measure(
        samples((0, 1.0, "calm"), (1, None, "surge"), (2, None, "surge"), (3, 1, "surge"), (4, 1, "surge")), 2.0
    )
    assert found.phases["calm"].loss == 0.0
    assert found.phases["surge"].loss == 0.5
    assert found.all.loss == pytest.approx(0.4)
    assert found.phases["surge"].count == 2


def test_a_result_that_seems_to_come_before_its_record_took_no_time() -> None:
    found = measure(samples((5, -0.3, "a")), target_s=2.0)
    assert found.all.mean_s == 0.0
    assert found.bins[0].mean_s == 0.0


def test_bins_go_by_arrival_and_include_silent_seconds() -> None:
    found = measure(samples((10.0, 1.0, "a"), (10.5, None, "a"), (10.9, 3.0, "a"), (12.2, None, "a")), 2.0)
    assert [(item.t, item.offered, item.admitted, item.mean_s) for item in found.bins] == [
        (0.0, 3, 2, pytest.approx(2.0)),
        (1.0, 0, 0, None),
        (2.0, 1, 0, None),
    ]


def test_an_empty_run_and_an_unanswered_one_have_no_numbers_but_valid_json() -> None:
    for records in ((), ((0.0, None, "a"),)):
        tree = measure(samples(*records), target_s=2.0).plain()
        assert tree["all"]["mean_s"] is None
        assert tree["all"]["count"] == 0
        json.dumps(tree, allow_nan=False)


def test_phases_keep_the_order_in_which_they_came() -> None:
    found = measure(samples((0, 1, "calm"), (1, 1, "surge"), (2, 1, "after")), 2.0)
    assert list(found.phases) == ["calm", "surge", "after"]
