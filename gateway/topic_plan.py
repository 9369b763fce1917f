"""Kafka topics as the settings want them, and how a cluster differs; nothing is ever deleted or shrunk."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from gateway.settings import Route, Settings
from protocol.topics import Topics

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_NO_BOUND_MS = 2**63 - 1  # Kafka's own way to say "any age" in message.timestamp.before.max.ms
_LARGEST_INT = 2**31 - 1

# A raw record of the largest allowed size still has to fit once Spillway's headers are appended:
# origin (a topic name of up to 249 bytes), reason, time-stamps, the text of an error.
HEADER_ROOM_BYTES = 1024
_OWN_MESSAGE_BYTES = 1_048_588  # Kafka's default; protocol.encoding refuses what is larger

RETENTION = "retention.ms"
RETENTION_BYTES = "retention.bytes"
CLEANUP = "cleanup.policy"
SEGMENT = "segment.ms"
MAX_BYTES = "max.message.bytes"
TIMESTAMP_TYPE = "message.timestamp.type"
OLDEST = "message.timestamp.before.max.ms"
NEWEST = "message.timestamp.after.max.ms"
MIN_IN_SYNC = "min.insync.replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic as the cluster has it; ``configs`` holds effective values, defaults included."""

    partitions: int
    replication: int
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """The topics that exist, of those that a plan asks about."""

    topics: Mapping[str, TopicState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    topic: str
    partitions: int
    replication: int  # -1: the broker's default
    configs: Mapping[str, str]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grow:
    topic: str
    was: int
    to: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Configure:
    topic: str
    name: str
    was: str
    to: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What a person has to decide: a problem stops `topics check`, advice does not."""

    topic: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    create: tuple[Create, ...] = ()
    grow: tuple[Grow, ...] = ()
    configure: tuple[Configure, ...] = ()
    ok: tuple[str, ...] = ()
    problems: tuple[Remark, ...] = ()
    advice: tuple[Remark, ...] = ()

    @property
    def changes(self) -> int:
        return len(self.create) + len(self.grow) + len(self.configure)

    @property
    def settled(self) -> bool:
        """Nothing to change and nothing in the way; advice may remain."""
        return not self.changes and not self.problems


class _Bound(Enum):
    EXACTLY = "exactly"
    AT_LEAST = "at least"  # -1 is more than any number, as Kafka reads it for retention
    AT_MOST = "at most"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    name: str
    value: str
    why: str
    bound: _Bound = _Bound.EXACTLY

    def holds(self, found: str) -> bool:
        if self.bound is _Bound.EXACTLY:
            return _items(found) == _items(self.value)
        have, want = _amount(found), _amount(self.value)
        return have >= want if self.bound is _Bound.AT_LEAST else have <= want


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """A topic as it should be; ``grows`` tells whether more partitions than wanted do no harm."""

    topic: str
    partitions: int
    replication: int
    rules: tuple[_Rule, ...]
    why: str
    why_partitions: str
    grows: bool
    first_configs: Mapping[str, str] = field(default_factory=dict)  # at creation only; later the user's


def names(settings: Settings) -> tuple[str, ...]:
    """The topics that a plan has to know about."""
    users = [name for route in settings.topics for name in (route.raw, route.processing)]
    result = [settings.own_topics.result] if settings.own_topics.result else []
    own = Topics(settings.pipeline)
    ours = [own.feedback, own.reports, own.control, own.audit, own.leader, own.shed, own.parked]
    return tuple(dict.fromkeys([*users, *result, *ours]))


def plan(settings: Settings, cluster: ClusterState) -> Plan:
    """What to create, grow and configure, what already fits, and what a person must decide."""
    problems, advice = list(_problems(settings, cluster)), list(_advice(settings, cluster))
    create: list[Create] = []
    grow: list[Grow] = []
    configure: list[Configure] = []
    for wanted in _wanted(settings, cluster):
        found = cluster.topics.get(wanted.topic)
        if found is None:
            create.append(_creation(wanted))
            continue
        if found.partitions < wanted.partitions:
            grow.append(Grow(topic=wanted.topic, was=found.partitions, to=wanted.partitions, why=wanted.why_partitions))
        elif found.partitions > wanted.partitions and not wanted.grows:
            text = (
                f"has {found.partitions} partitions and must have {wanted.partitions}: {wanted.why_partitions}; "
                "partitions cannot be taken away: stop the gateways, delete the topic and apply again"
            )
            problems.append(Remark(topic=wanted.topic, text=text))
        configure.extend(_changes(wanted, found))
        if 0 < found.replication < wanted.replication:
            text = (
                f"has replication factor {found.replication}, {wanted.replication} is wanted: "
                "move it with kafka-reassign-partitions"
            )
            advice.append(Remark(topic=wanted.topic, text=text))
    changes: list[Create | Grow | Configure] = [*create, *grow, *configure]
    touched = {change.topic for change in changes} | {item.topic for item in problems}
    return Plan(
        create=tuple(create),
        grow=tuple(grow),
        configure=tuple(configure),
        ok=tuple(name for name in names(settings) if name in cluster.topics and name not in touched),
        problems=tuple(problems),
        advice=tuple(advice),
    )


def _creation(wanted: _Wanted) -> Create:
    return Create(
        topic=wanted.topic,
        partitions=wanted.partitions,
        replication=wanted.replication,
        configs={**wanted.first_configs, **{rule.name: rule.value for rule in wanted.rules}},
        why=wanted.why,
    )


def _changes(wanted: _Wanted, found: TopicState) -> Iterator[Configure]:
    for rule in wanted.rules:
        was = found.configs.get(rule.name)
        if was is None or rule.holds(was):  # None: a broker that does not know this configuration
            continue
        yield Configure(topic=wanted.topic, name=rule.name, was=was, to=rule.value, why=rule.why)


def _wanted(settings: Settings, cluster: ClusterState) -> Iterator[_Wanted]:
    for route in settings.topics:
        raw = cluster.topics.get(route.raw)
        if raw is not None:
            yield _processing(route, raw)
        elif route.processing in cluster.topics:
            yield _processing_without_raw(route, cluster.topics[route.processing])
    raws = [cluster.topics[route.raw] for route in settings.topics if route.raw in cluster.topics]
    yield from _own(settings, raws)


def _processing(route: Route, raw: TopicState) -> _Wanted:
    rules = [_create_time(), _record_fits(raw, f"raw topic {route.raw}")]
    kept = raw.configs.get(RETENTION)
    if kept is not None:
        why = (
            f"admitted records keep their timestamps, and the broker deletes by them: less than the {_span(kept)} "
            f"of {route.raw} would delete records that were admitted late before the job has read them"
        )
        rules.append(_Rule(name=RETENTION, value=kept, why=why, bound=_Bound.AT_LEAST))
    if OLDEST in raw.configs:
        needed = _oldest_admitted(raw)
        why = (
            f"a record may come {_span(needed)} old from {route.raw} (its own limit and the time it waits there); "
            "the broker would refuse to take it"
        )
        rules.append(_Rule(name=OLDEST, value=needed, why=why, bound=_Bound.AT_LEAST))
    if NEWEST in raw.configs and not _appends_time(raw):
        why = f"{route.raw} takes timestamps that far ahead; the broker would refuse them here"
        rules.append(_Rule(name=NEWEST, value=raw.configs[NEWEST], why=why, bound=_Bound.AT_LEAST))
    copied = {name: raw.configs[name] for name in (RETENTION_BYTES, MIN_IN_SYNC) if name in raw.configs}
    return _Wanted(
        topic=route.processing,
        partitions=raw.partitions,
        replication=raw.replication or -1,
        rules=tuple(rules),
        why=f"admitted records of {route.raw} go here; partitions, retention and sizes are those of {route.raw}",
        why_partitions=f"a record keeps its partition number, and {route.raw} has {raw.partitions}",
        grows=True,
        first_configs={CLEANUP: "delete", **copied},
    )


def _processing_without_raw(route: Route, found: TopicState) -> _Wanted:
    return _Wanted(
        topic=route.processing,
        partitions=found.partitions,
        replication=found.replication,
        rules=(_create_time(),),
        why="",
        why_partitions="",
        grows=True,
    )


def _own(settings: Settings, raws: Sequence[TopicState]) -> Iterator[_Wanted]:
    own = Topics(settings.pipeline)
    replication = settings.own_topics.replication_factor
    append_time = _Rule(
        name=TIMESTAMP_TYPE,
        value="LogAppendTime",
        why="retention then goes by the broker's clock, whatever the clocks of writers say",
    )
    message_fits = _Rule(
        name=MAX_BYTES,
        value=str(_OWN_MESSAGE_BYTES),
        why="the largest message of the protocol must fit",
        bound=_Bound.AT_LEAST,
    )

    def single(topic: str, *rules: _Rule, why: str, why_single: str) -> _Wanted:
        return _Wanted(
            topic=topic,
            partitions=1,
            replication=replication,
            rules=(*rules, append_time, message_fits),
            why=why,
            why_partitions=why_single,
            grows=False,
        )

    one_order = "all its messages must have one order"
    newest = _cleanup("compact,delete", "the newest message of each key is enough, and nobody needs an old one")
    hour = _kept(_HOUR_MS, "who starts within the hour after an outage still finds the last word")
    segment = _Rule(
        name=SEGMENT,
        value=str(10 * _MINUTE_MS),
        why="only closed segments are cleaned: readers that start have little to read through",
        bound=_Bound.AT_MOST,
    )
    yield single(own.feedback, newest, hour, segment, why="the job reports progress here", why_single=one_order)
    yield single(own.reports, newest, hour, segment, why="replicas report to the leader here", why_single=one_order)
    yield single(
        own.control,
        _cleanup("compact", "settings and the leader's state must outlive any outage"),
        segment,
        why="the leader and operators publish budgets and settings here",
        why_single=one_order,
    )
    yield single(
        own.audit,
        _cleanup("delete", "every change counts, so none may be compacted away"),
        _kept(365 * _DAY_MS, "who changed what is asked long afterwards"),
        why="who changed what, from what, to what",
        why_single=one_order,
    )
    # A week, not for ever: nobody reads old claims but people. Deleting records never lowers the next
    # offset, which is the next epoch; deleting the *topic* would, and old leaders would be believed.
    yield single(
        own.leader,
        _cleanup("delete", "a claim's offset is its epoch; claims have no keys to compact by"),
        _kept(7 * _DAY_MS, "epochs are offsets and grow on when old claims are deleted; a week is for people"),
        why="replicas claim the leadership here; never delete this topic, its offsets are the epochs",
        why_single="whoever holds its only partition leads",
    )
    widest = max((raw.partitions for raw in raws), default=1)
    fits = _record_fits_all(raws)
    late = _Rule(
        name=TIMESTAMP_TYPE,
        value="LogAppendTime",
        why="records with old timestamps would be deleted at once; the original is in spillway.timestamp",
    )
    whole = _cleanup("delete", "every record counts, also two of one key")
    for topic, days, why in (
        (own.shed, 7, "shed records wait here for a replay (shed.keep: all)"),
        (own.parked, 30, "records that cannot be read wait here for a person"),
    ):
        yield _Wanted(
            topic=topic,
            partitions=widest,
            replication=replication,
            rules=(whole, _kept(days * _DAY_MS, why), late, fits),
            why=why,
            why_partitions="records keep their partition number, and the largest raw topic has this many",
            grows=True,
        )


def _problems(settings: Settings, cluster: ClusterState) -> Iterator[Remark]:
    for route in settings.topics:
        raw, processing = cluster.topics.get(route.raw), cluster.topics.get(route.processing)
        if raw is None:
            text = "the raw topic does not exist; it belongs to its producers: create it, or correct topics[].raw"
            if processing is None:
                text += f" ({route.processing} is derived from it)"
            yield Remark(topic=route.raw, text=text)
        if processing is not None and "compact" in _items(processing.configs.get(CLEANUP, "")):
            text = (
                "cleanup.policy compacts: admitted records would vanish before the job has read them, "
                "and tombstones with them; set cleanup.policy=delete"
            )
            yield Remark(topic=route.processing, text=text)
    result = settings.own_topics.result
    if result and result not in cluster.topics:
        text = "the result topic does not exist; it belongs to the job: create it, or correct own_topics.result"
        yield Remark(topic=result, text=text)


def _advice(settings: Settings, cluster: ClusterState) -> Iterator[Remark]:
    result = settings.own_topics.result
    for name in dict.fromkeys([*(route.raw for route in settings.topics), *([result] if result else [])]):
        found = cluster.topics.get(name)
        if found is not None and not _appends_time(found):
            text = (
                "message.timestamp.type=LogAppendTime is recommended: with CreateTime, response times "
                "depend on the clocks of those who write"
            )
            yield Remark(topic=name, text=text)
    for route in settings.topics:
        raw, processing = cluster.topics.get(route.raw), cluster.topics.get(route.processing)
        if raw is None:
            continue
        kept = max(
            (state.configs.get(RETENTION, "-1") for state in (raw, processing) if state is not None), key=_amount
        )
        oldest = raw.configs.get(OLDEST, str(_NO_BOUND_MS))
        if not _appends_time(raw) and _amount(kept) <= _amount(oldest) and _amount(kept) != _amount("-1"):
            text = (
                f"retention.ms={kept} ({_span(kept)}) counts from the records' own timestamps: of a backfill "
                "with older ones the broker deletes what the job has not read within minutes; before one set "
                f"retention.ms=-1 here, or message.timestamp.type=LogAppendTime on {route.raw}"
            )
            yield Remark(topic=route.processing, text=text)
        if processing is not None:
            size = processing.configs.get(RETENTION_BYTES, "-1")
            if _amount(size) < _amount(raw.configs.get(RETENTION_BYTES, "-1")):
                text = (
                    f"retention.bytes={size} is less than that of {route.raw}: while the job stands still, "
                    "admitted records may be deleted unread"
                )
                yield Remark(topic=route.processing, text=text)


def _create_time() -> _Rule:
    return _Rule(
        name=TIMESTAMP_TYPE,
        value="CreateTime",
        why="with LogAppendTime the broker overwrites the timestamps that the gateway preserves",
    )


def _record_fits(raw: TopicState, whose: str) -> _Rule:
    size = int(raw.configs.get(MAX_BYTES, _OWN_MESSAGE_BYTES))
    return _Rule(
        name=MAX_BYTES,
        value=str(min(_LARGEST_INT, size + HEADER_ROOM_BYTES)),
        why=f"the largest record of {whose} ({size} bytes) must fit, with Spillway's headers",
        bound=_Bound.AT_LEAST,
    )


def _record_fits_all(raws: Sequence[TopicState]) -> _Rule:
    largest = max(raws, key=lambda raw: int(raw.configs.get(MAX_BYTES, 0)), default=None)
    return _record_fits(largest or TopicState(partitions=1, replication=1), "the raw topics")


def _cleanup(policy: str, why: str) -> _Rule:
    return _Rule(name=CLEANUP, value=policy, why=why)


def _kept(milliseconds: int, why: str) -> _Rule:
    return _Rule(name=RETENTION, value=str(milliseconds), why=why, bound=_Bound.AT_LEAST)


def _appends_time(state: TopicState) -> bool:
    return state.configs.get(TIMESTAMP_TYPE) == "LogAppendTime"


def _oldest_admitted(raw: TopicState) -> str:
    """The age in milliseconds at which a record may leave the raw topic: its age on arrival and its wait."""
    on_arrival = 0 if _appends_time(raw) else int(raw.configs[OLDEST])
    wait = int(raw.configs.get(RETENTION, "-1"))
    if wait < 0 or on_arrival + wait >= _NO_BOUND_MS:
        return str(_NO_BOUND_MS)
    return str(on_arrival + wait)


def _items(value: str) -> frozenset[str]:
    return frozenset(part.strip() for part in value.split(","))


def _amount(value: str) -> float:
    number = float(value)
    return float("inf") if number < 0 or number >= _NO_BOUND_MS else number


def _span(milliseconds: str) -> str:
    """7 days, 36 hours, 90 minutes, 500 ms or any age."""
    if _amount(milliseconds) == float("inf"):
        return "any age"
    count = int(milliseconds)
    for unit, size in (("days", _DAY_MS), ("hours", _HOUR_MS), ("minutes", _MINUTE_MS), ("seconds", 1000)):
        if count >= 2 * size or (count >= size and not count % size):
            return f"{count / size:g} {unit if count != size else unit[:-1]}"
    return f"{count} ms"
