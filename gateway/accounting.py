"""Every raw record has an outcome: counters per partition and reason, checked whenever offsets are committed."""

from collections import Counter
from dataclasses import dataclass, field

from controller.batch import ADMITTED, SHED_REASONS
from gateway.transport import Outcome


@dataclass(slots=True)
class PartitionAccount:
    """Counts since the partition was taken over."""

    arrived: int = 0
    admitted: int = 0
    parked: int = 0
    shed: Counter[str] = field(default_factory=Counter)
    without_key: int = 0
    doubted_timestamps: int = 0

    def enter(self, outcome: Outcome) -> None:
        codes = outcome.codes
        self.arrived += len(codes)
        self.parked += len(outcome.unreadable)
        for row in outcome.unreadable:
            codes[row] = _PARKED
        self.admitted += int((codes == ADMITTED).sum())
        for code, reason in enumerate(SHED_REASONS):
            if count := int((codes == code).sum()):
                self.shed[reason.value] += count
        self.doubted_timestamps += int(outcome.doubted.sum())

    def refused_by_topic(self) -> None:
        """An admitted record was parked after all."""
        self.admitted -= 1
        self.parked += 1

    @property
    def balanced(self) -> bool:
        return self.arrived == self.admitted + self.parked + self.shed.total()


_PARKED = len(SHED_REASONS)  # a code that is neither admitted nor a reason for shedding
