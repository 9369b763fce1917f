"""The leader's work, once per control period: reports and feedback in, budgets per partition out."""

import logging
from collections.abc import Mapping

from controller.budget import Budget, Reason
from controller.ctrl import Ctrl, gains
from controller.governor import Degrade, EnginePeriod, Governor, GovernorSettings, PartitionPeriod
from controller.seams import LoadManager
from gateway.feedback import Feedback
from gateway.settings import ControllerSettings, FeedbackSettings
from gateway.transport import TopicPartition
from protocol.messages import Report

log = logging.getLogger(__name__)


class Leader:
    """Turns counters that only grow into periods, asks the governor, and says aloud when its reason changes."""

    def __init__(self, settings: ControllerSettings, when_silent: FeedbackSettings, feedback: Feedback) -> None:
        self._when_silent = when_silent
        self._feedback = feedback
        self._governor: Governor[TopicPartition] = Governor(
            GovernorSettings(
                set_point=settings.set_point * settings.target_seconds,
                period=settings.period_seconds,
                headroom=None if settings.headroom == "auto" else settings.headroom,
                initial_records=settings.initial_records,
                hold=when_silent.hold_seconds,
                degrade=Degrade(when_silent.degrade),
                guarded=settings.actuator == "guarded",
            ),
            load_manager(settings),
        )
        self._latest: dict[TopicPartition, Report] = {}
        self._counted: dict[TopicPartition, Report] = {}
        self._sums = _sums(feedback)
        self._reason: Reason | None = None

    def begin(self) -> None:
        """Start leading: what the topics told of the time before is state, not something that happened now."""
        self._sums = _sums(self._feedback)
        self._counted = dict(self._latest)

    def report(self, report: Report) -> None:
        self._latest[TopicPartition(report.topic, report.partition)] = report

    def step(self, now: float) -> Mapping[TopicPartition, Budget]:
        """The budgets from ``now`` (monotonic seconds) on."""
        partitions = {source: self._period(source) for source in self._latest}
        engine = self._engine_period()
        budgets = self._governor.step(now, partitions, engine)
        if budgets:
            self._say(next(iter(budgets.values())))
        if log.isEnabledFor(logging.DEBUG):
            rate, limit = (sum(getattr(b, name) for b in budgets.values()) for name in ("rate", "limit"))
            log.debug("%s, %s, rate %.2f, limit %.2f", self._governor.seen, engine, rate, limit)
        return budgets

    def _period(self, source: TopicPartition) -> PartitionPeriod:
        now, before = self._latest[source], self._counted.get(source)
        self._counted[source] = now
        if before is None or before.incarnation != now.incarnation:  # counters restarted with a new owner
            arrived, admitted, shed = 0, 0, 0
        else:
            arrived, admitted, shed = before.arrived, before.admitted, sum(before.shed.values())
        return PartitionPeriod(
            arrived=max(0, now.arrived - arrived),
            admitted=max(0, now.admitted - admitted),
            shed=max(0, sum(now.shed.values()) - shed),
            outstanding=now.outstanding,
        )

    def _engine_period(self) -> EnginePeriod:
        sums, before = _sums(self._feedback), self._sums
        self._sums = sums
        messages, finished, worked, busy, answered, response_sum = (
            now - then for now, then in zip(sums, before, strict=True)
        )
        return EnginePeriod(
            heard=messages > 0,
            finished=int(finished),
            worked=int(worked),
            busy=busy,
            response=response_sum / answered if answered else None,
            slots=self._feedback.slots,
            overhead=self._feedback.batches.overhead,
            parallelism=self._feedback.batches.parallelism,
        )

    def _say(self, budget: Budget) -> None:
        if budget.reason is self._reason:
            return
        self._reason = budget.reason
        if budget.reason is Reason.NO_FEEDBACK:
            log.warning(
                "no feedback for %g s with records outstanding: degrading to %s (feedback.degrade)",
                self._when_silent.hold_seconds,
                self._when_silent.degrade,
            )
        else:
            log.info("budget: %s", budget.reason.value)


def load_manager(settings: ControllerSettings) -> LoadManager | None:
    """The law that the settings name; None passes everything through."""
    if settings.load_manager == "none":
        return None
    return Ctrl(gains(*settings.poles, settings.gain_a))


def _sums(feedback: Feedback) -> tuple[float, ...]:
    answered = feedback.responses.total()
    return feedback.messages, feedback.finished, feedback.worked, feedback.busy, answered, feedback.response_sum
