"""Response times in logarithmic buckets, nine per cent wide, that add up across tasks."""

import math
from collections.abc import Mapping

_PER_OCTAVE = 8
_SMALLEST_S = 0.001
_LARGEST_BUCKET = 320  # 2**40 ms; nothing real is above it


def bucket(seconds: float) -> int:
    """The bucket of a response time; negative and tiny ones share the first."""
    if not seconds > _SMALLEST_S:
        return 0
    return min(_LARGEST_BUCKET, 1 + int(_PER_OCTAVE * math.log2(seconds / _SMALLEST_S)))


def middle(index: int) -> float:
    """The geometric middle of a bucket, in seconds."""
    if index <= 0:
        return _SMALLEST_S
    return float(_SMALLEST_S * 2.0 ** ((index - 0.5) / _PER_OCTAVE))


def quantile(counts: Mapping[int, int], share: float) -> float | None:
    """The response time below which ``share`` of the counted tuples lie; None without any."""
    total = sum(counts.values())
    if not total:
        return None
    seen = 0
    for index in sorted(counts):
        seen += counts[index]
        if seen >= share * total:
            return middle(index)
    return middle(max(counts))
