"""The load generator: sends a seeded schedule of records to a topic at their due times by the wall clock."""

import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import orjson
import typer
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from embedded.errors import EmbeddedError
from embedded.workload import (
    CALM_SURGE_AFTER,
    Ints,
    Schedule,
    draw_keys,
    fit_trace,
    parse_phase,
    read_trace,
    schedule,
    spread,
)
from gateway.cluster import explain, quiet_client, unreachable
from gateway.errors import ClusterError

_SLICE_S = 0.02
_LEAST_PAUSE_S = 0.001
_ANSWER_S = 10.0
_FLUSH_S = 30.0
_PADDING = b"x" * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSent:
    name: str
    sent: int
    begin_s: float | None  # wall time of the first record sent; None without any
    end_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What was sent; ``lag`` is how late records were handed to Kafka against their due times."""

    topic: str
    scheduled: int
    sent: int
    delivered: int
    failed: int
    error: str | None  # of the first record that failed
    begin_s: float
    end_s: float
    lag_mean_s: float
    lag_max_s: float
    phases: tuple[PhaseSent, ...]


def partitions_of(producer: Producer, topic: str, brokers: str) -> int:
    """How many partitions ``topic`` has; raises EmbeddedError in one line if that cannot be known."""
    try:
        found = producer.list_topics(topic, timeout=_ANSWER_S).topics[topic]
    except KafkaException as error:
        if error.args[0].code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT):
            raise EmbeddedError(unreachable(brokers, _ANSWER_S)) from None
        raise EmbeddedError(explain(error, f"look at topic {topic}")) from None
    if found.error is not None or not found.partitions:
        raise EmbeddedError(f"topic {topic} on {brokers}: {found.error.str() if found.error else 'no partitions'}")
    return len(found.partitions)


def make_producer(brokers: str, properties: Mapping[str, Any] | None = None) -> Producer:
    """acks=1: the load must not be slowed by replication, and what raw does not hold was never offered."""
    defaults = {"acks": 1, "linger.ms": 20, "compression.type": "lz4", "queue.buffering.max.messages": 1_000_000}
    return quiet_client(Producer, {"bootstrap.servers": brokers, **defaults, **(properties or {})})


def send(
    producer: Producer,
    topic: str,
    load: Schedule,
    keys: Sequence[str],
    partitions: Ints,
    *,
    payload_bytes: int = 0,
    stopped: Callable[[], bool] = lambda: False,
) -> Sent:
    """Sends record i at ``begin + due_s[i]``; never drifts, for the schedule is absolute: who is late hurries."""
    due = load.due_s
    total = len(due)
    deliveries = _Deliveries()
    first = [0.0] * len(load.names)
    last = [0.0] * len(load.names)
    counts = np.zeros(len(load.names), dtype=np.int64)
    lag_sum = lag_max = 0.0
    sent = 0
    begin_wall, begin = time.time(), time.monotonic()
    while sent < total and not stopped():
        now = time.monotonic() - begin
        ready = int(np.searchsorted(due, now, side="right"))
        for index in range(sent, ready):
            phase = int(load.phase[index])
            value = _value(index, load, keys[index], payload_bytes)
            _produce(producer, topic, value, keys[index].encode(), int(partitions[index]), deliveries)
            moment = time.monotonic() - begin
            late = max(0.0, moment - float(due[index]))
            lag_sum += late
            lag_max = max(lag_max, late)
            if not counts[phase]:
                first[phase] = begin_wall + moment
            last[phase] = begin_wall + moment
            counts[phase] += 1
        sent = ready
        producer.poll(0)
        if sent < total:
            wait = float(due[sent]) - (time.monotonic() - begin)
            time.sleep(min(_SLICE_S, max(_LEAST_PAUSE_S, wait)))
    rest = load.seconds - (time.monotonic() - begin)
    while rest > 0 and not stopped():  # a phase that ends in silence lasts as long as it should
        time.sleep(min(_SLICE_S, rest))
        rest = load.seconds - (time.monotonic() - begin)
    end_wall = begin_wall + (time.monotonic() - begin)
    unsent = producer.flush(_FLUSH_S)
    return Sent(
        topic=topic,
        scheduled=total,
        sent=sent,
        delivered=deliveries.delivered,
        failed=deliveries.failed + unsent,
        error=deliveries.error or (f"{unsent} records undelivered after {_FLUSH_S:g} s" if unsent else None),
        begin_s=begin_wall,
        end_s=end_wall,
        lag_mean_s=lag_sum / sent if sent else 0.0,
        lag_max_s=lag_max,
        phases=tuple(
            PhaseSent(
                name=name,
                sent=int(counts[i]),
                begin_s=first[i] if counts[i] else None,
                end_s=last[i] if counts[i] else None,
            )
            for i, name in enumerate(load.names)
        ),
    )


class _Deliveries:
    def __init__(self) -> None:
        self.delivered = 0
        self.failed = 0
        self.error: str | None = None

    def __call__(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.failed += 1
            self.error = self.error or error.str()


def _produce(producer: Producer, topic: str, value: bytes, key: bytes, partition: int, deliveries: _Deliveries) -> None:
    while True:
        try:
            producer.produce(topic, value, key, partition, on_delivery=deliveries)
            return
        except BufferError:  # the broker is slower than the load: wait for room, the lag tells
            producer.poll(_SLICE_S)


def _value(number: int, load: Schedule, key: str, payload_bytes: int) -> bytes:
    fields: dict[str, Any] = {"n": number, "phase": load.names[load.phase[number]], "key": key}
    if load.cost is not None:
        fields["cost"] = round(float(load.cost[number]), 6)
    value = orjson.dumps(fields)
    room = payload_bytes - len(value) - len(b',"pad":""')
    if room <= 0:
        return value
    return value[:-1] + b',"pad":"' + (_PADDING * (room // len(_PADDING) + 1))[:room] + b'"}'


def main(
    brokers: Annotated[str, typer.Option(help="Kafka brokers, host:port,…")],
    topic: Annotated[str, typer.Option(help="Topic to send to; it must exist.")],
    rate: Annotated[float, typer.Option(help="Capacity in records per second; phases are multiples of it.")],
    phase: Annotated[
        list[str] | None,
        typer.Option(help="NAME=SECONDSxLOAD, repeatable. Default: calm=20x0.5 surge=40x2 after=20x0.5."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Play this trace instead of phases: all of it in --seconds, its busiest half at twice --rate."
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(help="With --trace: how long it plays.")] = 80.0,
    load: Annotated[float, typer.Option(help="With --trace: multiple of --rate in the busiest half.")] = 2.0,
    keys: Annotated[int, typer.Option(help="How many different numbers the keys have.")] = 100,
    zipf: Annotated[float, typer.Option(help="Zipf exponent of the key numbers; 0 is uniform.")] = 0.0,
    classes: Annotated[
        list[str] | None, typer.Option("--class", help="NAME=WEIGHT, repeatable; keys read NAME:number.")
    ] = None,
    payload_bytes: Annotated[int, typer.Option(help="Pad values to this size; 0 leaves them small.")] = 0,
    spread_by: Annotated[
        str, typer.Option("--spread", help="uniform: evenly over partitions; key: by the key's hash.")
    ] = "uniform",
    partition: Annotated[int | None, typer.Option(help="Send everything to this partition.")] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same records and due times.")] = 1,
) -> None:
    """Send a load to a Kafka topic; the last line on stdout is JSON with counts and wall times per phase."""
    try:
        plan = _plan(phase, trace, rate=rate, seconds=seconds, load=load, seed=seed)
        weights = parse_classes(classes or ["default=1"])
        names = (
            [f"{next(iter(weights))}:{key}" for key in plan.keys]
            if plan.keys is not None
            else draw_keys(len(plan), classes=weights, keys=keys, zipf=zipf, seed=seed)
        )
        if spread_by not in ("uniform", "key"):
            raise EmbeddedError(f"--spread is {spread_by}; it must be uniform or key")
        producer = make_producer(brokers)
        width = partitions_of(producer, topic, brokers)
        if partition is not None and not 0 <= partition < width:
            raise EmbeddedError(f"--partition is {partition}; topic {topic} has {width} partitions, from 0 on")
        where = (
            spread(names, partitions=width, by_key=spread_by == "key", seed=seed)
            if partition is None
            else np.full(len(plan), partition, dtype=np.int64)
        )
    except (EmbeddedError, ClusterError) as error:
        typer.echo(f"generator: {error}", err=True)
        raise typer.Exit(1) from None
    ended: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: ended.append(received))
    done = send(producer, topic, plan, names, where, payload_bytes=payload_bytes, stopped=lambda: bool(ended))
    sys.stdout.write(orjson.dumps(asdict(done)).decode() + "\n")
    sys.stdout.flush()
    if done.failed:
        typer.echo(f"generator: {done.failed} records were not delivered: {done.error}", err=True)
        raise typer.Exit(1)


def parse_classes(texts: Sequence[str]) -> dict[str, float]:
    """``["gold=1", "default=3"]`` as weights by name."""
    weights: dict[str, float] = {}
    for text in texts:
        name, _, weight = text.partition("=")
        try:
            weights[name] = float(weight)
        except ValueError:
            raise EmbeddedError(f"--class {text!r} must read NAME=WEIGHT, for example gold=1") from None
    return weights


def _plan(
    phases: Sequence[str] | None, trace: Path | None, *, rate: float, seconds: float, load: float, seed: int
) -> Schedule:
    if trace is None:
        return schedule([parse_phase(text) for text in phases or ()] or CALM_SURGE_AFTER, rate, seed)
    if phases:
        raise EmbeddedError("--phase and --trace exclude each other")
    return fit_trace(read_trace(trace), seconds=seconds, rate=rate, seed=seed, load=load)


if __name__ == "__main__":
    typer.run(main)
