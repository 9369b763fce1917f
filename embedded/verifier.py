"""The outside verifier: reads all topics of a pipeline and maps every raw offset to what became of it."""

import time
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from numpy.typing import NDArray

from embedded.errors import EmbeddedError
from embedded.reading import Offsets, Partition, Reading, Span
from gateway.cluster import ANSWER_SECONDS, explain, quiet_client, unreachable
from gateway.errors import ClusterError
from gateway.settings import Settings
from protocol.topics import HEADER_PREFIX, ORIGIN, REASON, Topics, parse_origin

Kind = Literal["admitted", "shed", "parked", "results"]
Progress = Callable[[str, int, int], None]  # what is read, records so far, records at most

_EXAMPLES = 5
_MOST = np.iinfo(np.uint16).max
_LARGEST = 2**63 - 1
_ROUND_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Counts of raw records unless said otherwise; ``ok`` is the verdict, ``complaints`` its reasons."""

    exactly_once: bool
    raw: int
    admitted: int
    shed: Mapping[str, int]  # records in the shed topic, by reason
    parked: int
    results: int | None  # raw records with a result; None without a result topic
    missing: int  # without any outcome
    repeated: int  # with more than one outcome
    disordered: int  # overtaken by a later record of their partition that was admitted once
    misplaced: int  # admitted into another partition number
    altered: int  # admitted with another key, value, timestamp or user header
    unknown: int  # records whose origin is no raw record
    unstamped: Mapping[str, int]  # records without a readable spillway.origin, by topic
    results_missing: int
    results_repeated: int
    results_unadmitted: int  # raw records with a result that were never admitted
    later: int  # outcomes of raw records that came after the verifier began: not judged
    expired: int  # outcomes of raw records that retention has deleted since: not judged
    examples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # topic/partition/offset by count
    shed_kept: bool = True

    @property
    def ok(self) -> bool:
        return not self.complaints

    @property
    def complaints(self) -> tuple[str, ...]:
        return tuple(self._complaints())

    def _complaints(self) -> Iterator[str]:
        for topic, count in self.unstamped.items():
            yield (
                f"{count} records of {topic} carry no readable {ORIGIN} header: set origin: on before the run "
                "(the job must copy the header to its results)"
            )
        if self.missing:
            hint = "" if self.shed_kept else " (shed.keep is none: shed records leave no trace; set shed.keep: all)"
            yield f"{self.missing} raw records have no outcome{hint}"
        if self.exactly_once and self.repeated:
            yield f"{self.repeated} raw records have more than one outcome, against exactly once"
        for count, text in (
            (self.disordered, "admitted records have lost their order"),
            (self.misplaced, "admitted records are in another partition"),
            (self.altered, "admitted records differ from their raw record"),
            (self.unknown, "records claim an origin that is no raw record"),
            (self.results_missing, "admitted records have no result"),
            (self.results_unadmitted, "results belong to records that were not admitted"),
        ):
            if count:
                yield f"{count} {text}"


def verify(
    settings: Settings,
    *,
    exactly_once: bool = False,
    until_committed: bool = False,
    settle_seconds: float = 0.0,
    progress: Progress = lambda *_: None,
) -> Verification:
    """What became of the raw records that exist now.

    The end of raw is fixed first: what arrives later is not judged. Then results are read, then processing,
    shed and parked topics, so that whatever has a result is also seen where it was admitted. As long as
    outcomes or results are missing this is repeated with what has come since, for ``settle_seconds`` at most.
    With ``until_committed`` the raw topics end where the gateway's group has committed: what it has not
    yet taken is not judged. Raises ClusterError or EmbeddedError, in one line, if topics cannot be read.
    """
    properties = settings.client_properties()
    offsets = Offsets(properties)
    own = Topics(settings.pipeline)
    raw_topics = [route.raw for route in settings.topics]
    processing = {route.processing: route.raw for route in settings.topics}
    result = settings.own_topics.result
    _require(offsets, [*raw_topics, *processing, *([result] if result else [])])

    raw = offsets.spans(raw_topics)
    if until_committed:
        raw = _committed(settings, raw)
    began = time.monotonic()
    ledger = Ledger(raw, processing)
    _read_raw(properties, raw, ledger, progress)

    kinds: dict[str, Kind] = dict.fromkeys(processing, "admitted")
    kinds |= {own.shed: "shed", own.parked: "parked"}
    starts = {part: span.low for part, span in offsets.spans([*kinds, *([result] if result else [])]).items()}
    result_starts = {part: low for part, low in starts.items() if part[0] == result}
    outcome_starts = {part: low for part, low in starts.items() if part[0] in kinds}
    with Reading(properties, result_starts) as results, Reading(properties, outcome_starts) as outcomes:
        while True:
            if result:
                ends = _ends(offsets, result_starts)
                for batch in _counted("results", results.until(ends), ends, progress):
                    for message in batch:
                        ledger.outcome("results", message)
                    ledger.settle()
            ends = _ends(offsets, outcome_starts)
            for batch in _counted("outcomes", outcomes.until(ends), ends, progress):
                for message in batch:
                    ledger.outcome(kinds[message.topic() or ""], message)
                ledger.settle()
            if time.monotonic() - began >= settle_seconds or ledger.complete(results=result is not None):
                break
            time.sleep(_ROUND_PAUSE_S)
    return ledger.report(
        exactly_once=exactly_once,
        shed_kept=settings.shed.keep == "all",
        results=result is not None,
        now=offsets.spans(raw_topics),
    )


class Ledger:
    """A few bytes per raw record: what it was, how often it was admitted, shed, parked and answered."""

    def __init__(self, raw: Mapping[Partition, Span], processing: Mapping[str, str]) -> None:
        self._spans = dict(raw)
        self._processing = dict(processing)
        self._present = {part: np.zeros(len(span), np.bool_) for part, span in raw.items()}
        self._content = {part: np.zeros(len(span), np.int64) for part, span in raw.items()}
        self._altered = {part: np.zeros(len(span), np.bool_) for part, span in raw.items()}
        self._misplaced = {part: np.zeros(len(span), np.bool_) for part, span in raw.items()}
        kinds: tuple[Kind, ...] = ("admitted", "shed", "parked", "results")
        self._counts: dict[Kind, dict[Partition, NDArray[np.uint16]]] = {
            kind: {part: np.zeros(len(span), np.uint16) for part, span in raw.items()} for kind in kinds
        }
        self._pending: dict[tuple[Kind, Partition], list[int]] = {}
        self._order: dict[tuple[Partition, int], list[NDArray[np.int64]]] = {}
        self._sequence: dict[tuple[Partition, int], list[int]] = {}
        self._shed: Counter[str] = Counter()
        self._unstamped: Counter[str] = Counter()
        self._outside: dict[Partition, array[int]] = {}  # offsets outside the spans: later, expired or unknown

    def raw(self, message: Message) -> None:
        part = _part(message)
        span, offset = self._spans[part], _offset(message)
        if span.low <= offset < span.high:
            self._present[part][offset - span.low] = True
            self._content[part][offset - span.low] = _content(message)

    def outcome(self, kind: Kind, message: Message) -> None:
        headers = message.headers() or []
        try:
            stamp = next(value for name, value in reversed(headers) if name == ORIGIN)
            topic, number, offset = parse_origin(stamp if isinstance(stamp, bytes) else str(stamp).encode())
        except (StopIteration, ValueError):
            self._unstamped[message.topic() or ""] += 1
            return
        part = topic, number
        span = self._spans.get(part)
        if span is None or not span.low <= offset < span.high:
            self._outside.setdefault(part, array("q")).append(max(-1, min(offset, _LARGEST)))
            return
        index = offset - span.low
        self._pending.setdefault((kind, part), []).append(index)
        if kind == "shed":
            reason = next((value for name, value in headers if name == REASON), None)
            self._shed[reason.decode(errors="replace") if isinstance(reason, bytes) else "unnamed"] += 1
        elif kind == "admitted":
            target = message.partition() or 0
            self._sequence.setdefault((part, target), []).append(index)
            if target != number or self._processing.get(message.topic() or "") != topic:
                self._misplaced[part][index] = True
            if self._present[part][index] and self._content[part][index] != _content(message):
                self._altered[part][index] = True

    def settle(self) -> None:
        """Moves what ``outcome`` collected into the arrays; call it once per batch."""
        for (kind, part), indices in self._pending.items():
            counts = self._counts[kind][part]
            found, times = np.unique(np.asarray(indices, dtype=np.int64), return_counts=True)
            counts[found] = np.minimum(counts[found].astype(np.int64) + times, _MOST).astype(np.uint16)
        self._pending.clear()
        for where, indices in self._sequence.items():
            self._order.setdefault(where, []).append(np.asarray(indices, dtype=np.int64))
        self._sequence.clear()

    def complete(self, *, results: bool) -> bool:
        """Every raw record has an outcome and, if asked, every admitted one a result."""
        for part, present in self._present.items():
            if (present & (self._outcomes(part) == 0)).any():
                return False
            if results and ((self._counts["admitted"][part] > 0) & (self._counts["results"][part] == 0)).any():
                return False
        return True

    def report(
        self, *, exactly_once: bool, shed_kept: bool, results: bool, now: Mapping[Partition, Span]
    ) -> Verification:
        """``now`` are the raw spans after all reading; they tell later and expired origins from invented ones."""
        masks: dict[str, dict[Partition, NDArray[np.bool_]]] = {}
        for part, present in self._present.items():
            outcomes = self._outcomes(part)
            admitted = self._counts["admitted"][part] > 0
            answered = self._counts["results"][part]
            gone = np.arange(len(present)) < now.get(part, self._spans[part]).low - self._spans[part].low
            for name, mask in (
                ("raw", present),
                ("admitted", admitted & present),
                ("parked", (self._counts["parked"][part] > 0) & present),
                ("results", (answered > 0) & present),
                ("missing", present & (outcomes == 0)),
                ("repeated", present & (outcomes > 1)),
                ("disordered", self._disordered(part, outcomes)),
                ("misplaced", self._misplaced[part]),
                ("altered", self._altered[part]),
                ("unknown", ~present & ~gone & ((outcomes > 0) | (answered > 0))),
                ("results_missing", admitted & present & (answered == 0) & results),
                ("results_repeated", (answered > 1) & present),
                ("results_unadmitted", (answered > 0) & present & ~admitted),
            ):
                masks.setdefault(name, {})[part] = mask
        count = {name: sum(int(mask.sum()) for mask in parts.values()) for name, parts in masks.items()}
        later, expired, unknown = self._sort_outside(now)
        healthy = ("raw", "admitted", "parked", "results")
        examples = {name: self._first(parts) for name, parts in masks.items() if name not in healthy}
        examples["unknown"] = (*examples.get("unknown", ()), *unknown)[:_EXAMPLES]
        get = count.get
        return Verification(
            exactly_once=exactly_once,
            raw=get("raw", 0),
            admitted=get("admitted", 0),
            shed=dict(sorted(self._shed.items())),
            parked=get("parked", 0),
            results=get("results", 0) if results else None,
            missing=get("missing", 0),
            repeated=get("repeated", 0),
            disordered=get("disordered", 0),
            misplaced=get("misplaced", 0),
            altered=get("altered", 0),
            unknown=get("unknown", 0) + unknown.total(),
            unstamped=dict(self._unstamped),
            results_missing=get("results_missing", 0),
            results_repeated=get("results_repeated", 0),
            results_unadmitted=get("results_unadmitted", 0),
            later=later,
            expired=expired,
            examples={name: found for name, found in examples.items() if found},
            shed_kept=shed_kept,
        )

    def _outcomes(self, part: Partition) -> NDArray[np.int64]:
        kinds: tuple[Kind, ...] = ("admitted", "shed", "parked")
        total = np.zeros(len(self._spans[part]), np.int64)
        for kind in kinds:
            total += self._counts[kind][part]
        return total

    def _disordered(self, part: Partition, outcomes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Records whose first copy stands behind a later record that has but one outcome.

        After a crash the gateway goes back to its committed offsets and decides again: whatever it then
        steps back over gets a second outcome. A step back over a record with a single outcome is disorder.
        """
        found = np.zeros(len(outcomes), np.bool_)
        for (origin, _), chunks in self._order.items():
            if origin != part:
                continue
            order = np.concatenate(chunks)
            _, first = np.unique(order, return_index=True)
            firsts = order[np.sort(first)]
            singles = np.where(outcomes[firsts] == 1, firsts, -1)
            found[firsts[np.maximum.accumulate(singles) > firsts]] = True
        return found

    def _sort_outside(self, now: Mapping[Partition, Span]) -> tuple[int, int, Counter[str]]:
        later = expired = 0
        unknown: Counter[str] = Counter()
        for part, offsets in self._outside.items():
            judged, present = self._spans.get(part), now.get(part)
            low = judged.low if judged is not None else 0
            for offset in offsets:
                if present is None or offset < 0 or offset >= present.high:
                    unknown[f"{part[0]}/{part[1]}/{offset}"] += 1
                elif offset < low:
                    expired += 1
                else:
                    later += 1
        return later, expired, unknown

    def _first(self, masks: Mapping[Partition, NDArray[np.bool_]]) -> tuple[str, ...]:
        found = (
            f"{part[0]}/{part[1]}/{self._spans[part].low + index}"
            for part, mask in masks.items()
            for index in np.flatnonzero(mask)[:_EXAMPLES]
        )
        return tuple(text for text, _ in zip(found, range(_EXAMPLES), strict=False))


def _read_raw(properties: Mapping[str, Any], raw: Mapping[Partition, Span], ledger: Ledger, progress: Progress) -> None:
    ends = {part: span.high for part, span in raw.items()}
    with Reading(properties, {part: span.low for part, span in raw.items()}) as reading:
        for batch in _counted("raw", reading.until(ends), ends, progress):
            for message in batch:
                ledger.raw(message)


def _counted(
    what: str, batches: Iterator[list[Message]], ends: Mapping[Partition, int], progress: Progress
) -> Iterator[list[Message]]:
    total, seen = sum(ends.values()), 0
    for batch in batches:
        seen += len(batch)
        progress(what, seen, total)
        yield batch


def _ends(offsets: Offsets, parts: Collection[Partition]) -> dict[Partition, int]:
    spans = offsets.spans(topic for topic, _ in parts)
    return {part: spans[part].high for part in parts if part in spans}


def _require(offsets: Offsets, topics: list[str]) -> None:
    known = offsets.partitions(topics)
    absent = [topic for topic in topics if topic not in known]
    if absent:
        raise EmbeddedError(f"topic {absent[0]} does not exist; `spillway topics check` tells what is needed")


def _committed(settings: Settings, raw: Mapping[Partition, Span]) -> dict[Partition, Span]:
    group = settings.kafka.group_id or settings.pipeline
    properties = {**settings.client_properties(), "group.id": group, "enable.auto.commit": False}
    consumer = quiet_client(Consumer, properties)
    try:
        found = consumer.committed([TopicPartition(*part) for part in raw], timeout=ANSWER_SECONDS)
    except KafkaException as error:
        if error.args[0].code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
            raise ClusterError(unreachable(settings.kafka.bootstrap_servers, ANSWER_SECONDS)) from None
        raise ClusterError(explain(error, f"read the offsets of group {group}")) from None
    finally:
        consumer.close()
    ends = {(at.topic, at.partition): max(at.offset, 0) for at in found}
    return {
        part: Span(low=span.low, high=max(span.low, min(span.high, ends.get(part, 0)))) for part, span in raw.items()
    }


def _part(message: Message) -> Partition:
    return message.topic() or "", message.partition() or 0


def _offset(message: Message) -> int:
    return message.offset() or 0


def _content(message: Message) -> int:
    """A hash of everything that must pass unchanged; comparable within this process only."""
    headers = message.headers()
    users = tuple(pair for pair in headers if not pair[0].startswith(HEADER_PREFIX)) if headers else ()
    return hash((message.key(), message.value(), message.timestamp()[1], users))
