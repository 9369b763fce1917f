"""What a running pipeline does right now, read from its own topics as anybody could."""

import time
from collections import deque
from dataclasses import dataclass

from gateway.control_plane import ControlPlane, PlaneMessage
from gateway.feedback import Feedback
from gateway.settings import Settings
from gateway.transport import TopicPartition
from protocol.histogram import quantile
from protocol.messages import BatchStarted, BudgetMessage, Progress, Report

_WINDOW = 2.0  # seconds over which rates are taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    offered: float  # records per second
    admitted: float
    shed: float
    response_s: float | None  # median of the last seconds, from feedback
    outstanding: int
    reason: str


@dataclass(frozen=True, slots=True)
class _Sums:
    at: float
    arrived: int
    admitted: int
    shed: int
    responses: dict[int, int]


class Watch:
    """Reads reports, feedback and budgets; ``glance`` sums them up."""

    def __init__(self, settings: Settings) -> None:
        self.feedback = Feedback({route.processing for route in settings.topics})
        self._reports: dict[TopicPartition, Report] = {}
        self._reason = "starting"
        self._history: deque[_Sums] = deque()
        watching = settings.model_copy(update={"replica": f"{settings.pipeline}-watch"})
        self._plane = ControlPlane(watching, receive=self._receive)

    def glance(self) -> Glance:
        while self._plane.poll():
            pass
        reports = self._reports.values()
        now = _Sums(
            time.monotonic(),
            sum(r.arrived for r in reports),
            sum(r.admitted for r in reports),
            sum(sum(r.shed.values()) for r in reports),
            dict(self.feedback.responses),
        )
        self._history.append(now)
        while len(self._history) > 2 and now.at - self._history[1].at > _WINDOW:
            self._history.popleft()
        then = self._history[0]
        span = max(1e-3, now.at - then.at)
        recent = {index: n - then.responses.get(index, 0) for index, n in now.responses.items()}
        return Glance(
            offered=max(0.0, (now.arrived - then.arrived) / span),
            admitted=max(0.0, (now.admitted - then.admitted) / span),
            shed=max(0.0, (now.shed - then.shed) / span),
            response_s=quantile({i: n for i, n in recent.items() if n > 0}, 0.5),
            outstanding=sum(r.outstanding for r in reports),
            reason=self._reason,
        )

    def _receive(self, message: PlaneMessage) -> None:
        match message:
            case Progress() | BatchStarted():
                self.feedback.absorb(message)
            case Report():
                self._reports[TopicPartition(message.topic, message.partition)] = message
            case BudgetMessage():
                self._reason = message.reason

    def close(self) -> None:
        self._plane.close()
