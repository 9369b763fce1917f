import gzip
from pathlib import Path

import numpy as np
import pytest

from embedded.errors import EmbeddedError
from embedded.workload import (
    CALM_SURGE_AFTER,
    Phase,
    Trace,
    draw_keys,
    fit_trace,
    parse_phase,
    read_trace,
    schedule,
    spread,
)

LBL = "i,c12,i,i\n15444,location13,14,51\n25483,location17,2,89\n1015444,location06,30,5\n"
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,1000,10\n2023-11-16 18:17:04.0319600,0,40\n"
)


def test_equal_seeds_give_equal_schedules_and_others_do_not() -> None:
    first, again, other = (schedule(CALM_SURGE_AFTER, 100.0, seed) for seed in (7, 7, 8))
    assert np.array_equal(first.due_s, again.due_s)
    assert not np.array_equal(first.due_s, other.due_s[: len(first)])


def test_arrivals_come_in_order_and_within_their_phase() -> None:
    load = schedule(CALM_SURGE_AFTER, 200.0, seed=3)
    assert (np.diff(load.due_s) >= 0).all()
    borders = np.cumsum([0.0] + [phase.seconds for phase in CALM_SURGE_AFTER])
    assert np.array_equal(np.searchsorted(borders, load.due_s, side="right") - 1, load.phase)
    assert load.seconds == borders[-1]


def test_each_phase_offers_its_multiple_of_the_capacity() -> None:
    load = schedule([Phase(name="calm", seconds=100, load=0.5), Phase(name="surge", seconds=100, load=2)], 1000, 1)
    counts = np.bincount(load.phase)
    assert counts == pytest.approx([50_000, 200_000], rel=0.02)


def test_gaps_between_arrivals_are_exponential() -> None:
    gaps = np.diff(schedule([Phase(name="steady", seconds=500, load=1)], 200, seed=5).due_s)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.02)
    assert (gaps > gaps.mean()).mean() == pytest.approx(np.exp(-1), abs=0.01)


def test_a_phase_may_be_silent() -> None:
    assert not len(schedule([Phase(name="off", seconds=3, load=0)], 100, seed=1))


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_that_is_no_rate_is_refused(rate: float) -> None:
    with pytest.raises(EmbeddedError, match="rate"):
        schedule(CALM_SURGE_AFTER, rate, seed=1)


def test_a_phase_reads_as_name_seconds_and_load() -> None:
    assert parse_phase("surge=40x2") == Phase(name="surge", seconds=40, load=2)


@pytest.mark.parametrize("text", ["surge", "surge=40", "=40x2", "surge=fortyx2", "surge=40x"])
def test_a_phase_that_reads_otherwise_is_refused(text: str) -> None:
    with pytest.raises(EmbeddedError, match="NAME=SECONDSxLOAD"):
        parse_phase(text)


@pytest.mark.parametrize("packed", [True, False])
def test_the_lbl_form_gives_seconds_from_the_first_arrival_and_keys(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "trace"
    path.write_bytes(gzip.compress(LBL.encode()) if packed else LBL.encode())
    trace = read_trace(path)
    assert trace.at_s == pytest.approx([0.0, 0.010039, 1.0])
    assert trace.keys is not None
    assert trace.keys.tolist() == ["location13", "location17", "location06"]
    assert trace.cost is None


def test_the_azure_form_gives_seconds_and_costs_of_mean_one(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(AZURE)
    trace = read_trace(path)
    assert trace.at_s == pytest.approx([0.0, 0.052])
    assert trace.cost == pytest.approx([20 / 30, 40 / 30])
    assert trace.keys is None


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"hello\nworld\n", "line 1"),
        (b"", "line 1"),
        (b"\xff\xfe\x00", "text"),
        (b"\x1f\x8b broken", "gzip"),
        (b"i,c12,i,i\n12,a,1,1\nmany,b,1,1\n", "line 3"),
        (b"i,c12,i,i\n12,a,1,1\n", "two different times"),
        (b"TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n", "line 2"),
    ],
)
def test_another_file_is_refused_in_one_line(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "trace"
    path.write_bytes(content)
    with pytest.raises(EmbeddedError, match=says) as refused:
        read_trace(path)
    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_missing_trace_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match="No such file"):
        read_trace(tmp_path / "none.csv")


def bursty() -> Trace:
    """Ten seconds at 10/s, ten at 50/s, in turns."""
    dice = np.random.default_rng(11)
    rates = [10, 50] * 10
    parts = [10 * i + np.sort(dice.random(10 * rate)) * 10 for i, rate in enumerate(rates)]
    at = np.concatenate(parts)
    return Trace(at_s=at - at[0], keys=np.asarray([f"k{i % 7}" for i in range(len(at))]))


@pytest.mark.parametrize(("seconds", "rate"), [(80.0, 400.0), (40.0, 3.0), (400.0, 100.0)])
def test_the_busiest_half_of_a_fitted_trace_is_offered_at_twice_the_capacity(seconds: float, rate: float) -> None:
    load = fit_trace(bursty(), seconds=seconds, rate=rate, seed=2)
    per_second = np.bincount(load.due_s.astype(int), minlength=int(seconds))
    busiest = np.sort(per_second)[-len(per_second) // 2 :]
    assert busiest.mean() == pytest.approx(2 * rate, rel=0.1)
    assert load.due_s[-1] <= seconds
    assert (np.diff(load.due_s) >= 0).all()


def test_a_fitted_trace_keeps_its_bursts_and_its_calm() -> None:
    load = fit_trace(bursty(), seconds=200, rate=500, seed=2)
    per_burst = np.bincount((load.due_s / 10).astype(int), minlength=20)
    assert per_burst[1::2].min() > 4 * per_burst[0::2].max()
    assert [load.names[i] for i in (0, 1)] == ["quiet", "busy"]
    assert (load.phase == ((load.due_s // 10) % 2)).mean() > 0.97


def test_a_fitted_trace_keeps_keys_in_their_shares() -> None:
    load = fit_trace(bursty(), seconds=80, rate=400, seed=2)
    assert load.keys is not None
    _, counts = np.unique(load.keys, return_counts=True)
    assert counts / len(load) == pytest.approx([1 / 7] * 7, rel=0.1)


def test_keys_name_their_class_by_weight() -> None:
    keys = draw_keys(20_000, classes={"gold": 1, "default": 3}, keys=10, zipf=0, seed=1)
    assert sum(key.startswith("gold:") for key in keys) == pytest.approx(5_000, rel=0.05)
    assert {int(key.split(":")[1]) for key in keys} == set(range(10))


def test_zipf_keys_fall_off_with_their_number() -> None:
    keys = draw_keys(50_000, classes={"default": 1}, keys=100, zipf=1.0, seed=1)
    counts = [keys.count(f"default:{number}") for number in (0, 1, 9)]
    assert counts[0] / counts[1] == pytest.approx(2, rel=0.1)
    assert counts[0] / counts[2] == pytest.approx(10, rel=0.15)


@pytest.mark.parametrize(
    ("classes", "keys", "zipf"),
    [
        ({}, 10, 0.0),
        ({"a": 0.0}, 10, 0.0),
        ({"a": -1.0, "b": 2.0}, 10, 0.0),
        ({"a": 1.0}, 0, 0.0),
        ({"a": 1.0}, 1, -1.0),
    ],
)
def test_keys_that_cannot_be_drawn_are_refused(classes: dict[str, float], keys: int, zipf: float) -> None:
    with pytest.raises(EmbeddedError):
        draw_keys(5, classes=classes, keys=keys, zipf=zipf, seed=1)


def test_one_key_still_loads_all_partitions_evenly() -> None:
    where = spread(["default:1"] * 40_000, partitions=4, by_key=False, seed=1)
    assert np.bincount(where) == pytest.approx([10_000] * 4, rel=0.05)


def test_by_key_a_key_stays_in_its_partition() -> None:
    keys = [f"default:{number % 5}" for number in range(100)]
    where = spread(keys, partitions=4, by_key=True, seed=1)
    assert all(len({int(where[i]) for i in range(k, 100, 5)}) == 1 for k in range(5))
