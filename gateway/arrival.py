"""When a record arrived: its timestamp where that can be believed, else the time of the poll."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.settings import ArrivalSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    seconds: NDArray[np.float64]
    doubted: NDArray[np.bool_]  # the timestamp was not believed; the arrival travels in a header


def arrivals(timestamps_ms: NDArray[np.int64], *, by_broker: bool, now: float, settings: ArrivalSettings) -> Arrivals:
    """``by_broker``: the topic uses LogAppendTime, whose stamps are believed as they are."""
    stamped = timestamps_ms / 1000.0
    if by_broker:
        doubted = timestamps_ms < 0
    else:
        doubted = (
            (timestamps_ms < 0) | (stamped > now + settings.future_seconds) | (stamped < now - settings.oldest_seconds)
        )
    return Arrivals(seconds=np.where(doubted, now, stamped), doubted=doubted)
