"""The reference job's work: so many seconds per record, waited or computed, by the class of its key."""

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import orjson

from spark_job.errors import SettingError
from spark_job.rows import Record

Kind = Literal["wait", "spin"]
DEFAULT_COST_S = 0.010


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Calling it works through one record; the result says what was done."""

    kind: Kind = "wait"
    default_s: float = DEFAULT_COST_S
    classes: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in ("wait", "spin"):
            raise SettingError("--work", f"is {self.kind!r}; it must be wait or spin")

    def class_of(self, key: bytes | None) -> str:
        """The key's text up to the first colon, if it has a cost of its own."""
        name = (key or b"").decode(errors="replace").partition(":")[0]
        return name if name in self.classes else "default"

    def seconds(self, name: str) -> float:
        return self.classes.get(name, self.default_s)

    def __call__(self, record: Record) -> bytes:
        name = self.class_of(record.key)
        seconds = self.seconds(name)
        if self.kind == "wait":
            time.sleep(seconds)
        else:
            spin(seconds)
        key = None if record.key is None else record.key.decode(errors="replace")
        return orjson.dumps({"key": key, "class": name, "work": self.kind, "seconds": seconds})


def spin(seconds: float) -> None:
    """Uses that much processor time, however long it takes to get it."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def costs(texts: Iterable[str]) -> dict[str, float]:
    """``["default=0.010", "dear=0.025"]`` as a mapping; raises SettingError for anything else."""
    found: dict[str, float] = {}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            seconds = float(number)
        except ValueError:
            seconds = math.nan
        if not name or not 0 <= seconds < math.inf:
            raise SettingError("--cost", f"is {text!r}; it must be CLASS=SECONDS, such as dear=0.025")
        found[name] = seconds
    return found
