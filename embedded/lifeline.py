"""Runs a child process that ends with its parent, even when the parent is killed with -9.

The parent holds a pipe to a small wrapper (`python -m embedded.lifeline -- CMD…`), and the wrapper runs
the command in a session of its own. When the pipe closes, for whatever reason, the whole session goes.
"""

import argparse
import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from embedded.errors import EmbeddedError

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Child:
    """The parent's side. Signals go to the child's process group, so that what it forked shares its fate."""

    def __init__(self, wrapper: subprocess.Popen[bytes], *, pid: int, name: str, log: Path, grace: float) -> None:
        self._wrapper = wrapper
        self._grace = grace
        self.pid = pid  # of the command itself, not of the wrapper
        self.name = name
        self.log = log

    @classmethod
    def start(
        cls,
        command: Sequence[str | Path],
        log: Path,
        env: Mapping[str, str] | None = None,
        name: str = "child",
        grace: float = 10.0,
    ) -> Self:
        """Starts the command; `env` replaces the environment, output is appended to the log."""
        log.parent.mkdir(parents=True, exist_ok=True)
        wrap = [sys.executable, "-m", "embedded.lifeline", "--grace", str(grace), "--", *map(str, command)]
        with log.open("ab") as out:
            # A session of its own: Ctrl-C in the terminal reaches the parent alone, which decides.
            wrapper = subprocess.Popen(
                wrap, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, env=env, start_new_session=True
            )
        assert wrapper.stdout is not None
        with wrapper.stdout as first_line:
            pid = first_line.readline().strip()
        child = cls(wrapper, pid=int(pid or 0), name=name, log=log, grace=grace)
        if not pid:
            child.stop()
            raise EmbeddedError(f"{name} could not be started: {child.tail(1)} (log: {log})")
        return child

    def alive(self) -> bool:
        return self._wrapper.poll() is None

    def wait(self, timeout: float | None = None) -> int:
        """The child's exit code (128 + n after signal n); `subprocess.TimeoutExpired` if it is still running."""
        return self._wrapper.wait(timeout)

    def terminate(self) -> None:
        """Asks for the end and does not wait for it."""
        assert self._wrapper.stdin is not None
        with contextlib.suppress(OSError):
            self._wrapper.stdin.close()

    def stop(self, timeout: float | None = None) -> int:
        """SIGTERM, after the grace SIGKILL; the exit code. `timeout` cuts the grace short."""
        self.terminate()
        try:
            return self._wrapper.wait(self._grace + 5.0 if timeout is None else timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._wrapper.wait()

    def kill(self) -> None:
        """SIGKILL, and back when it is gone."""
        self._signal(signal.SIGKILL)
        self._wrapper.wait()
        self.terminate()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def tail(self, lines: int = 20) -> str:
        """The end of the log."""
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - 65_536))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
        return ""

    def _signal(self, number: signal.Signals) -> None:
        if self.pid and self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def run(command: Sequence[str], grace: float) -> int:
    """The wrapper's side: runs the command until it ends, stdin closes or a signal asks for its end."""
    wake, woken = os.pipe()
    for end in (wake, woken):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(woken)
    for number in (*_ENDING, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(), start_new_session=True)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    print(child.pid, flush=True)
    while child.poll() is None:
        ready, _, _ = select.select([0, wake], [], [])
        if 0 in ready and not os.read(0, 4096):
            break
        if wake in ready and set(os.read(wake, 4096)) & set(_ENDING):
            break
    _end(child, grace)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _end(child: subprocess.Popen[bytes], grace: float) -> None:
    """Ends the child and all that is left of its session."""
    deadline = time.monotonic() + grace
    for number in (signal.SIGTERM, signal.SIGKILL):
        _to_session(child.pid, number)
        while child.poll() is None or _groups(child.pid):
            if number is signal.SIGTERM and time.monotonic() > deadline:
                break
            if number is signal.SIGKILL:
                _to_session(child.pid, number)  # also what was forked meanwhile
            time.sleep(0.02)
        else:
            return


def _to_session(leader: int, number: signal.Signals) -> None:
    for group in _groups(leader):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
            os.killpg(group, signal.SIGCONT)  # a stopped process does not see SIGTERM


def _groups(leader: int) -> set[int]:
    """The process groups with a living member in the leader's session.

    More than the leader's own: Spark's Python daemon moves into a group of its own.
    """
    proc = Path("/proc")
    if not proc.is_dir():  # not Linux: the leader's group is all we can know
        try:
            os.killpg(leader, 0)
        except OSError:
            return set()
        return {leader}
    groups = set()
    for entry in proc.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # After "pid (name)": state, parent, group, session.
                state, _, group, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(session) == leader and state not in "ZX":
                    groups.add(int(group))
    return groups


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m embedded.lifeline", description=__doc__)
    parser.add_argument("--grace", type=float, default=10.0, help="seconds between SIGTERM and SIGKILL")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    return run(given.command, given.grace)


if __name__ == "__main__":
    sys.exit(main())
