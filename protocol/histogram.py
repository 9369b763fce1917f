"""Response times in logarithmic buckets, four per cent wide, that add up across tasks."""

import math
from collections.abc import Mapping

_PER_OCTAVE = 16
_SMALLEST_S = 0.001
_LARGEST_BUCKET = 640  # 2**40 ms; nothing real is above it


def bucket(seconds: float) -> int:
    """The bucket of a response time; negative and tiny ones share the first."""
    if not seconds > _SMALLEST_S:
        return 0
    return min(_LARGEST_BUCKET, 1 + int(_PER_OCTAVE * math.log2(seconds / _SMALLEST_S)))


def lower_bound(index: int) -> float:
    """The smallest response time of a bucket, in seconds."""
    return 0.0 if index <= 0 else float(_SMALLEST_S * 2.0 ** ((index - 1) / _PER_OCTAVE))


def quantile(counts: Mapping[int, int], share: float) -> float | None:
    """The response time below which ``share`` of the counted tuples lie; None without any.

    Within a bucket tuples are taken as evenly spread.
    """
    total = sum(counts.values())
    if not total:
        return None
    wanted, seen = share * total, 0
    for index in sorted(counts):
        if seen + counts[index] >= wanted:
            low, high = lower_bound(index), lower_bound(index + 1)
            return low + (high - low) * (wanted - seen) / max(1, counts[index])
        seen += counts[index]
    return lower_bound(max(counts) + 1)
