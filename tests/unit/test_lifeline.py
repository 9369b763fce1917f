import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from embedded.errors import EmbeddedError
from embedded.lifeline import Child

FOREVER = "import signal; print('up', flush=True); signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + FOREVER


def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def state(pid: int) -> str:
    """The process state as in ps: S, T (stopped), and so on; empty when it is gone or a zombie."""
    try:
        found = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
    return "" if found == "Z" else found


def start(code: str, tmp_path: Path, grace: float = 10.0) -> Child:
    child = Child.start([sys.executable, "-c", code], tmp_path / "log", grace=grace)
    until(lambda: "up" in child.tail())
    return child


def test_a_parent_killed_with_9_takes_the_child_along(tmp_path: Path) -> None:
    parent_code = f"""
        import sys, signal
        from pathlib import Path
        from embedded.lifeline import Child
        child = Child.start([sys.executable, "-c", {FOREVER!r}], Path({str(tmp_path / "log")!r}))
        print(child.pid, flush=True)
        signal.pause()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(parent_code)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert state(pid)
        parent.kill()
        until(lambda: not state(pid))


def test_what_the_child_forked_goes_too_even_in_a_group_of_its_own(tmp_path: Path) -> None:
    code = f"""
import os, subprocess, sys
grandchild = subprocess.Popen([sys.executable, "-c", "import os; os.setpgid(0, 0); " + {STUBBORN!r}])
print("grandchild", grandchild.pid, flush=True)
{FOREVER}
"""
    child = start(code, tmp_path, grace=0.2)
    until(lambda: child.tail().count("up") == 2)
    grandchild = int(child.tail().split("grandchild ")[1].split()[0])
    child.stop()
    assert not state(grandchild)


def test_stop_asks_first_and_returns_the_exit_code(tmp_path: Path) -> None:
    code = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); " + FOREVER
    child = start(code, tmp_path)
    assert child.stop() == 7
    assert not child.alive()


def test_a_child_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    child = start(STUBBORN, tmp_path, grace=0.2)
    assert child.stop() == 128 + signal.SIGKILL


def test_a_paused_child_stands_still_and_can_still_be_stopped(tmp_path: Path) -> None:
    child = start(FOREVER, tmp_path)
    child.pause()
    until(lambda: state(child.pid).startswith("T"))
    child.resume()
    until(lambda: state(child.pid).startswith("S"))
    child.pause()
    assert child.stop() == 128 + signal.SIGTERM


def test_kill_is_over_when_it_returns(tmp_path: Path) -> None:
    child = start(FOREVER, tmp_path)
    child.kill()
    assert not child.alive()
    assert not state(child.pid)
    assert child.stop() == 128 + signal.SIGKILL  # stopping the dead is no error


def test_the_child_is_out_of_reach_of_the_terminals_ctrl_c(tmp_path: Path) -> None:
    with start(FOREVER, tmp_path) as child:
        assert os.getsid(child.pid) != os.getsid(0)


def test_a_command_that_does_not_exist_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match=r"broker could not be started: /no/such: No such file") as caught:
        Child.start(["/no/such"], tmp_path / "log", name="broker")
    assert "\n" not in str(caught.value)
