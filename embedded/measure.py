"""Response times and loss measured from outside: append times of results against those of raw records."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import orjson
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message
from numpy.typing import NDArray

from embedded.errors import EmbeddedError
from embedded.reading import Offsets, Partition, Reading, Span
from protocol.topics import ORIGIN, parse_origin

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_NO_PHASE = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """One entry per raw record; ``answered_s`` is NaN where there is no result. Wall-clock seconds."""

    arrived_s: Floats
    answered_s: Floats
    phase: Ints  # index into names
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class M:
    """Response times y of the records with a result against the target D; None where there is none."""

    count: int = 0  # records with a result
    mean_s: float | None = None
    p50_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    max_s: float | None = None
    violation_s: float = 0.0  # Σ (y − D)+
    delayed: int = 0  # records beyond D
    overshoot_s: float = 0.0  # max (y − D)+
    loss: float | None = None  # share of the raw records that have no result


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """One second of arrivals; ``t`` counts from the first arrival of all."""

    t: float
    offered: int
    admitted: int  # of them with a result
    mean_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    target_s: float
    begin_s: float | None  # wall time of the first arrival, where t is 0
    all: M
    phases: Mapping[str, M]
    bins: tuple[Bin, ...]

    def plain(self) -> dict[str, Any]:
        """Plain values for JSON, free of NaN."""
        return asdict(self)


def measure(samples: Samples, target_s: float, *, bin_s: float = 1.0) -> Measurement:
    """Every number of a run. A record still unanswered when its result topic was read counts as lost."""
    everything = np.ones(len(samples.arrived_s), dtype=np.bool_)
    return Measurement(
        target_s=target_s,
        begin_s=float(samples.arrived_s.min()) if len(samples.arrived_s) else None,
        all=_summary(samples, everything, target_s),
        phases={
            name: _summary(samples, samples.phase == number, target_s) for number, name in enumerate(samples.names)
        },
        bins=_bins(samples, bin_s),
    )


def read(properties: Mapping[str, Any], *, raw: Sequence[str], result: str) -> Samples:
    """The samples of a finished run; both kinds of topic must use LogAppendTime.

    A raw record is joined with the first result that carries its ``spillway.origin``. Its phase is the
    ``phase`` of its JSON value. Raises ClusterError or EmbeddedError in one line.
    """
    offsets = Offsets(properties)
    known = offsets.partitions([*raw, result])
    for topic in (*raw, result):
        if topic not in known:
            raise EmbeddedError(f"topic {topic} does not exist")
    spans = offsets.spans(raw)
    arrived: dict[Partition, Floats] = {part: np.full(len(span), np.nan) for part, span in spans.items()}
    answered: dict[Partition, Floats] = {part: np.full(len(span), np.nan) for part, span in spans.items()}
    phase: dict[Partition, Ints] = {part: np.zeros(len(span), np.int64) for part, span in spans.items()}
    names: dict[str, int] = {}
    begins: dict[str, float] = {}
    for message in _messages(properties, spans):
        part = message.topic() or "", message.partition() or 0
        index = (message.offset() or 0) - spans[part].low
        if not 0 <= index < len(spans[part]):
            continue
        at = _append_time(message)
        name = _phase(message.value())
        arrived[part][index] = at
        phase[part][index] = names.setdefault(name, len(names))
        begins[name] = min(at, begins.get(name, at))
    for message in _messages(properties, offsets.spans([result])):
        found = _origin(message)
        if found is None or found[:2] not in spans:
            continue
        part, offset = found[:2], found[2]
        index = offset - spans[part].low
        if 0 <= index < len(spans[part]):
            answered[part][index] = np.fmin(answered[part][index], _append_time(message))
    order = sorted(names, key=lambda name: begins[name])  # as they came, whatever partition was read first
    rank = np.zeros(len(names) or 1, dtype=np.int64)
    for position, name in enumerate(order):
        rank[names[name]] = position
    there = np.concatenate([~np.isnan(column) for column in arrived.values()] or [np.zeros(0, np.bool_)])

    def column(parts: Mapping[Partition, Floats]) -> Floats:
        judged: Floats = np.concatenate([*parts.values(), np.zeros(0)])[there]
        return judged

    return Samples(
        arrived_s=column(arrived),
        answered_s=column(answered),
        phase=rank[np.concatenate([*phase.values(), np.zeros(0, np.int64)])[there]],
        names=tuple(order),
    )


def _summary(samples: Samples, chosen: NDArray[np.bool_], target_s: float) -> M:
    offered = int(chosen.sum())
    answered = chosen & ~np.isnan(samples.answered_s)
    # Brokers' clocks may differ by a little; nothing is answered before it came.
    response = np.maximum(samples.answered_s[answered] - samples.arrived_s[answered], 0.0)
    loss = 1.0 - len(response) / offered if offered else None
    if not len(response):
        return M(loss=loss)
    beyond = np.maximum(response - target_s, 0.0)
    p50, p95, p99 = (float(value) for value in np.quantile(response, [0.5, 0.95, 0.99]))
    return M(
        count=len(response),
        mean_s=float(response.mean()),
        p50_s=p50,
        p95_s=p95,
        p99_s=p99,
        max_s=float(response.max()),
        violation_s=float(beyond.sum()),
        delayed=int((beyond > 0).sum()),
        overshoot_s=float(beyond.max()),
        loss=loss,
    )


def _bins(samples: Samples, bin_s: float) -> tuple[Bin, ...]:
    if not len(samples.arrived_s):
        return ()
    index = ((samples.arrived_s - samples.arrived_s.min()) / bin_s).astype(np.int64)
    answered = ~np.isnan(samples.answered_s)
    size = int(index.max()) + 1
    offered = np.bincount(index, minlength=size)
    admitted = np.bincount(index[answered], minlength=size)
    response = np.maximum(samples.answered_s[answered] - samples.arrived_s[answered], 0.0)
    total = np.bincount(index[answered], weights=response, minlength=size)
    return tuple(
        Bin(
            t=number * bin_s,
            offered=int(offered[number]),
            admitted=int(admitted[number]),
            mean_s=float(total[number] / admitted[number]) if admitted[number] else None,
        )
        for number in range(size)
    )


def _messages(properties: Mapping[str, Any], spans: Mapping[Partition, Span]) -> Iterator[Message]:
    with Reading(properties, {part: span.low for part, span in spans.items()}) as reading:
        for batch in reading.until({part: span.high for part, span in spans.items()}):
            yield from batch


def _append_time(message: Message) -> float:
    kind, milliseconds = message.timestamp()
    if kind != TIMESTAMP_LOG_APPEND_TIME:
        raise EmbeddedError(
            f"topic {message.topic()} has producers' timestamps; measuring needs message.timestamp.type=LogAppendTime"
        )
    return float(milliseconds) / 1000.0


def _phase(value: bytes | None) -> str:
    try:
        found = orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        return _NO_PHASE
    name = found.get("phase") if isinstance(found, dict) else None
    return name if isinstance(name, str) else _NO_PHASE


def _origin(message: Message) -> tuple[str, int, int] | None:
    for name, value in reversed(message.headers() or []):
        if name == ORIGIN:
            try:
                return parse_origin(value if isinstance(value, bytes) else str(value).encode())
            except ValueError:
                return None
    return None
