"""When records are due and what they carry, as pure functions of phases or a trace, a rate and a seed."""

import csv
import gzip
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import StringIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from embedded.errors import EmbeddedError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_AZURE = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"]
# One generated token takes a pass of its own, the context's tokens share one: about a hundred to one.
_CONTEXT_SHARE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """``seconds`` of arrivals at ``load`` times the capacity."""

    name: str
    seconds: float
    load: float


CALM_SURGE_AFTER: tuple[Phase, ...] = (
    Phase(name="calm", seconds=20.0, load=0.5),
    Phase(name="surge", seconds=40.0, load=2.0),
    Phase(name="after", seconds=20.0, load=0.5),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Record i is due ``due_s[i]`` seconds after the start, in order, and belongs to ``names[phase[i]]``."""

    due_s: Floats
    phase: Ints
    names: tuple[str, ...]
    seconds: float
    keys: NDArray[np.str_] | None = None  # where the trace has keys
    cost: Floats | None = None  # relative, mean 1 over the trace

    def __len__(self) -> int:
        return len(self.due_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Arrivals in seconds from the first on, in order; ``cost`` is relative with mean 1."""

    at_s: Floats
    keys: NDArray[np.str_] | None = None
    cost: Floats | None = None

    @property
    def seconds(self) -> float:
        return float(self.at_s[-1])


def schedule(phases: Sequence[Phase], rate: float, seed: int) -> Schedule:
    """Poisson arrivals: in each phase at ``load · rate`` records per second, one phase after the other."""
    if not phases:
        raise EmbeddedError("a load needs at least one phase")
    _positive("rate", rate)
    dice = np.random.default_rng(seed)
    due: list[Floats] = []
    index: list[Ints] = []
    begin = 0.0
    for number, phase in enumerate(phases):
        _positive(f"the seconds of phase {phase.name}", phase.seconds)
        if not phase.load >= 0:
            raise EmbeddedError(f"the load of phase {phase.name} is {phase.load:g}; it must be 0 or more")
        # Given their number, the arrivals of a Poisson process are uniform and independent.
        count = dice.poisson(phase.load * rate * phase.seconds)
        due.append(begin + np.sort(dice.random(count)) * phase.seconds)
        index.append(np.full(count, number, dtype=np.int64))
        begin += phase.seconds
    return Schedule(
        due_s=np.concatenate(due),
        phase=np.concatenate(index),
        names=tuple(phase.name for phase in phases),
        seconds=begin,
    )


def parse_phase(text: str) -> Phase:
    """``surge=40x2`` is the phase surge, 40 seconds at twice the capacity."""
    name, equals, rest = text.partition("=")
    seconds, times, load = rest.partition("x")
    try:
        if not (name and equals and times):
            raise ValueError
        return Phase(name=name, seconds=float(seconds), load=float(load))
    except ValueError:
        raise EmbeddedError(f"phase {text!r} must read NAME=SECONDSxLOAD, for example surge=40x2") from None


def read_trace(path: Path) -> Trace:
    """A recorded load: the LBL form (first line a schema, then µs, key, …) or Azure's LLM inference form.

    Plain or gzip. Azure's cost is ``GeneratedTokens + ContextTokens / 100``, scaled to mean 1.
    """
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    except OSError as error:
        raise EmbeddedError(f"trace {path}: {error.strerror or 'not a gzip file'}") from None
    except (UnicodeDecodeError, EOFError, zlib.error):
        raise EmbeddedError(f"trace {path}: neither text nor gzipped text") from None
    rows = csv.reader(StringIO(text))
    first = next(rows, [])
    at: list[float] = []
    keys: list[str] = []
    cost: list[float] = []
    try:
        if first == _AZURE:
            for row in rows:
                at.append(_moment(row[0]))
                cost.append(int(row[2]) + _CONTEXT_SHARE * int(row[1]))
        elif len(first) > 1 and first[0] == "i" and all(column[:1] in ("i", "c") for column in first):
            for row in rows:
                at.append(int(row[0]) * 1e-6)
                keys.append(row[1])
        else:
            raise EmbeddedError(f"trace {path}: line 1 is neither a schema such as i,c12,i,i nor {','.join(_AZURE)}")
    except (ValueError, IndexError):
        raise EmbeddedError(f"trace {path}: line {rows.line_num} cannot be read as its first line announces") from None
    if len(at) < 2 or max(at) == min(at):
        raise EmbeddedError(f"trace {path}: a load needs arrivals at two different times at least")
    order = np.argsort(at, kind="stable")
    arrivals = np.asarray(at, dtype=np.float64)[order]
    weights = np.asarray(cost, dtype=np.float64)[order] if cost else None
    return Trace(
        at_s=arrivals - arrivals[0],
        keys=np.asarray(keys)[order] if keys else None,
        cost=weights / weights.mean() if weights is not None and weights.mean() > 0 else None,
    )


def fit_trace(trace: Trace, *, seconds: float, rate: float, seed: int, load: float = 2.0) -> Schedule:
    """The whole trace played in ``seconds``, its busiest half at ``load`` times the capacity ``rate``.

    Time is squeezed (or stretched) by one factor. The number of records is then scaled by another, so that
    the mean over the busiest half of all one-second bins is ``load · rate``: the other half brings the calm
    that recovery is seen in, and the peaks go beyond. The new arrivals divide the trace's cumulative count
    evenly, with a seeded jitter within each share: bursts and gaps keep their shape and place, no
    arrivals coincide that did not in the trace. Key and cost are those of the arrival that was there. The
    phases are ``busy`` (the busiest half) and ``quiet``.
    """
    _positive("seconds", seconds)
    _positive("rate", rate)
    _positive("load", load)
    dice = np.random.default_rng(seed)
    recorded = len(trace.at_s)
    at = trace.at_s * (seconds / trace.seconds)
    bins = max(2, int(np.ceil(seconds)))
    width = seconds / bins
    in_bin = np.minimum((at / width).astype(np.int64), bins - 1)
    per_bin = np.bincount(in_bin, minlength=bins)
    busiest = np.argsort(-per_bin, kind="stable")[: (bins + 1) // 2]
    busy = np.zeros(bins, dtype=np.bool_)
    busy[busiest] = True
    factor = load * rate * width * len(busiest) / per_bin[busiest].sum()
    count = max(1, round(recorded * factor))
    position = (np.arange(count) + dice.random(count)) * (recorded / count)  # on the cumulative count
    due = np.interp(position, np.arange(recorded + 1), np.append(at, seconds))
    nearest = np.minimum(position.astype(np.int64), recorded - 1)
    phase = np.where(busy[np.minimum((due / width).astype(np.int64), bins - 1)], 1, 0).astype(np.int64)
    return Schedule(
        due_s=due,
        phase=phase,
        names=("quiet", "busy"),
        seconds=seconds,
        keys=trace.keys[nearest] if trace.keys is not None else None,
        cost=trace.cost[nearest] if trace.cost is not None else None,
    )


def draw_keys(
    count: int,
    *,
    classes: Mapping[str, float],
    keys: int,
    zipf: float,
    seed: int,
) -> list[str]:
    """``class:number`` for each record: classes by weight, numbers below ``keys`` by Zipf (0: uniform)."""
    if keys < 1:
        raise EmbeddedError(f"keys is {keys}; there must be at least 1")
    if not zipf >= 0:
        raise EmbeddedError(f"zipf is {zipf:g}; it must be 0 (uniform) or more")
    weights = np.asarray(list(classes.values()), dtype=np.float64)
    if not len(weights) or not (weights >= 0).all() or not weights.sum() > 0:
        raise EmbeddedError("classes need weights of 0 or more, one of them above 0")
    dice = np.random.default_rng([seed, 1])  # another stream than the arrivals'
    share = np.arange(1, keys + 1, dtype=np.float64) ** -zipf
    numbers = dice.choice(keys, size=count, p=share / share.sum())
    names = list(classes)
    chosen = dice.choice(len(names), size=count, p=weights / weights.sum())
    return [f"{names[which]}:{number}" for which, number in zip(chosen, numbers, strict=True)]


def spread(keys: Sequence[str], *, partitions: int, by_key: bool, seed: int) -> Ints:
    """The partition of each record: by its key's hash, or uniform whatever the keys are."""
    if by_key:
        known = {key: zlib.crc32(key.encode()) % partitions for key in set(keys)}
        return np.asarray([known[key] for key in keys], dtype=np.int64)
    return np.random.default_rng([seed, 2]).integers(partitions, size=len(keys))


def _moment(text: str) -> float:
    """Seconds; Azure writes seven decimals, one more than datetime reads."""
    whole, _, fraction = text.partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + (float(f"0.{fraction}") if fraction else 0.0)


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise EmbeddedError(f"{name} is {value:g}; it must be above 0")
