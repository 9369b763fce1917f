"""The names of a pipeline's own topics, and the keys under which their messages are compacted."""

from dataclasses import dataclass

from protocol.messages import BatchStarted, BudgetMessage, Progress, Report

# Headers that Spillway appends; all others are the user's and pass unchanged.
HEADER_PREFIX = "spillway."
ARRIVED = "spillway.arrived"  # arrival in milliseconds, where it differs from the record's timestamp
ORIGIN = "spillway.origin"  # raw topic/partition/offset
ERROR = "spillway.error"  # why a record was parked
REASON = "spillway.reason"  # why a record was shed
DECIDED = "spillway.decided"  # when, in milliseconds
TIMESTAMP = "spillway.timestamp"  # the raw record's timestamp, in milliseconds


@dataclass(frozen=True, slots=True)
class Topics:
    """``Topics("orders").feedback`` is ``orders.feedback``, and so on."""

    pipeline: str

    @property
    def feedback(self) -> str:
        return f"{self.pipeline}.feedback"

    @property
    def reports(self) -> str:
        return f"{self.pipeline}.reports"

    @property
    def control(self) -> str:
        return f"{self.pipeline}.control"

    @property
    def audit(self) -> str:
        return f"{self.pipeline}.audit"

    @property
    def leader(self) -> str:
        return f"{self.pipeline}.leader"

    @property
    def shed(self) -> str:
        return f"{self.pipeline}.shed"

    @property
    def parked(self) -> str:
        return f"{self.pipeline}.parked"


def origin(topic: str, partition: int, offset: int) -> bytes:
    return f"{topic}/{partition}/{offset}".encode()


def parse_origin(value: bytes) -> tuple[str, int, int]:
    """Inverse of ``origin``; raises ValueError for anything else."""
    topic, partition, offset = value.decode().rsplit("/", 2)
    return topic, int(partition), int(offset)


def feedback_key(message: Progress | BatchStarted) -> bytes:
    return f"{message.query}/{message.topic}-{message.partition}/{message.kind}".encode()


def report_key(message: Report) -> bytes:
    return f"{message.topic}-{message.partition}".encode()


def budget_key(message: BudgetMessage) -> bytes:
    return f"budget/{message.topic}-{message.partition}".encode()
