"""Finds a Java that is new enough for Kafka and Spark."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from embedded.errors import EmbeddedError

OLDEST = 17
_HOW = "install one (Debian: apt-get install openjdk-17-jre-headless) or point JAVA_HOME at it"


def find_java() -> Path:
    """`$JAVA_HOME/bin/java`, else `java` on PATH: the first that is at least version 17."""
    too_old: list[str] = []
    for java in _candidates():
        version = _version(java)
        if version is not None and version >= OLDEST:
            return java
        too_old.append(f"{java} is {'unreadable' if version is None else f'version {version}'}")
    seen = f" ({'; '.join(too_old)})" if too_old else ""
    raise EmbeddedError(f"no Java {OLDEST} or newer was found{seen}; {_HOW}")


def major_version(text: str) -> int | None:
    """The feature release in what `java -version` prints; `1.8.0` is 8."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    first, second = int(found[1]), int(found[2] or 0)
    return second if first == 1 else first


def _candidates() -> list[Path]:
    home, path = os.environ.get("JAVA_HOME"), shutil.which("java")
    found = [Path(home, "bin", "java")] if home else []
    found += [Path(path)] if path else []
    return [java for java in found if java.is_file()]


def _version(java: Path) -> int | None:
    try:
        run = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return major_version(run.stderr + run.stdout) if run.returncode == 0 else None
