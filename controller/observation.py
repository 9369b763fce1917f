"""What a load manager is told about one control period, summed over the pipeline."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One control period. Counts and busy seconds cover this period only."""

    period: float  # seconds it lasted
    arrived: int
    admitted: int
    finished: int
    outstanding: int  # admitted and not yet finished, when the period ended
    cost: float  # mean engine-seconds of one tuple
    headroom: float  # engine-seconds of work available per second
    set_point: float  # response time in seconds to regulate to

    @property
    def arrival_rate(self) -> float:
        return self.arrived / self.period

    @property
    def admission_rate(self) -> float:
        return self.admitted / self.period

    @property
    def completion_rate(self) -> float:
        return self.finished / self.period

    @property
    def backlog(self) -> float:
        """Seconds that the outstanding work takes."""
        return self.outstanding * self.cost / self.headroom
