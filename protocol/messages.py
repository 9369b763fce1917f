"""The messages on Spillway's own topics, as frozen values; seconds are wall-clock seconds since the epoch."""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

Name = Annotated[str, Field(min_length=1, max_length=300)]
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]

# Strict and closed: a message that is not exactly ours is refused, never half understood.
_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStarted:
    """A task has begun on its part of a micro-batch and knows how many records it will work through."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    query: Name
    run: Name
    batch: Count
    topic: Name  # the processing topic
    partition: Count
    task: Count  # unique per attempt within one run
    attempt: Count
    first: Count  # offset of its first record
    received: Count  # records handed to the task so far; all of them, unless there are very many
    slots: Annotated[int, Field(ge=1)]  # tasks that the engine can run at once
    started_s: Seconds
    kind: Literal["batch"] = "batch"
    v: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What one attempt of a task has done of one partition so far: cumulative within the attempt."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    query: Name
    run: Name
    batch: Count
    topic: Name
    partition: Count
    task: Count
    attempt: Count
    first: Count
    next: Count  # offset behind the last record whose result has left the worker
    count: Count  # records finished; fewer than next - first where offsets have gaps
    received: Count
    busy_s: Seconds  # engine time spent in the user's function
    response_sum_s: Seconds
    response_max_s: Seconds
    responses: dict[str, Count] = field(default_factory=dict)  # see protocol.histogram
    slots: Annotated[int, Field(ge=1)]
    started_s: Seconds
    at_s: Seconds
    done: bool
    kind: Literal["progress"] = "progress"
    v: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one replica did with one raw partition since it took it over: counters only grow."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    replica: Name
    incarnation: Name  # new with every assignment: counters restart at zero
    topic: Name  # the raw topic
    partition: Count
    arrived: Count
    admitted: Count
    parked: Count
    shed: dict[str, Count]  # by reason
    admitted_work_s: Seconds
    outstanding: Count  # admitted and not yet finished
    outstanding_work_s: Seconds
    delivered: Annotated[int, Field(ge=-1)]  # newest offset written to the processing topic
    at_s: Seconds
    kind: Literal["report"] = "report"
    v: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetMessage:
    """What may be admitted of one raw partition until the next message; None stands for no limit."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    epoch: Count  # of the leader that says so; lower ones are refused
    sequence: Count
    topic: Name
    partition: Count
    rate: Seconds | None  # engine-seconds per second
    offered: Seconds  # engine-seconds per second expected to arrive
    limit_s: Seconds | None  # engine-seconds that may be outstanding
    deadline_s: Seconds | None
    cost_s: Seconds | None  # mean engine-seconds of one record; None while unknown
    period_s: Annotated[float, Field(gt=0)]
    reason: Name
    at_s: Seconds
    kind: Literal["budget"] = "budget"
    v: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A replica says that it leads; the offset of this record is its epoch."""

    __pydantic_config__: ClassVar[Any] = _STRICT

    replica: Name
    at_s: Seconds
    kind: Literal["claim"] = "claim"
    v: Literal[1] = 1


Message = BatchStarted | Progress | Report | BudgetMessage | Claim
