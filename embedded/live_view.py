"""The demo as a person sees it: a live panel on a terminal, a line now and then elsewhere."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from embedded.demo import Moment

_BARS = "▁▂▃▄▅▆▇█"
_LINE_EVERY = 5.0  # seconds, where there is no terminal
_HISTORY = 60


class LiveView:
    def __init__(self, target_s: float, console: Console | None = None) -> None:
        self._target = target_s
        self._console = console or Console(stderr=True)
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)
        self._responses: list[float | None] = []
        self._run = ""
        self._said = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        self._live.stop()
        self._console.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim] {text}")

    def show(self, moment: Moment) -> None:
        if moment.run != self._run:
            self._run, self._responses = moment.run, []
        self._responses.append(moment.glance.response_s)
        if self._console.is_terminal:
            if not self._live.is_started:
                self._live.start()
            self._live.update(self._panel(moment))
        elif time.monotonic() - self._said > _LINE_EVERY:
            self._said = time.monotonic()
            print(_line(moment), file=sys.stderr, flush=True)

    def _panel(self, moment: Moment) -> Panel:
        glance = moment.glance
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim")
        table.add_column(justify="right")
        table.add_column()
        scale = max(1.0, glance.offered)
        for name, rate, style in (
            ("offered", glance.offered, "white"),
            ("admitted", glance.admitted, "green"),
            ("shed", glance.shed, "red"),
        ):
            bar = ProgressBar(total=scale, completed=rate, width=40, complete_style=style)
            table.add_row(name, f"{rate:,.0f}/s", bar)
        late = glance.response_s is not None and glance.response_s > self._target
        response = "–" if glance.response_s is None else f"{glance.response_s:.2f} s"
        table.add_row(
            "response", Text(response, style="bold red" if late else "bold green"), f"target {self._target:g} s"
        )
        table.add_row("backlog", f"{glance.outstanding:,}", f"controller: {glance.reason.replace('_', ' ')}")
        table.add_row("", "", self._sparkline())
        progress = ProgressBar(total=moment.total_s, completed=min(moment.elapsed_s, moment.total_s), width=60)
        title = f"{moment.run} shedding · {moment.phase} · {moment.elapsed_s:.0f} s"
        return Panel(Group(table, progress), title=title, border_style="blue", expand=False)

    def _sparkline(self) -> Text:
        """The response times of the last quarter minute; full height is twice the target."""
        text = Text()
        for value in self._responses[-_HISTORY:]:
            if value is None:
                text.append(" ")
                continue
            height = min(len(_BARS) - 1, int(value / (2 * self._target) * len(_BARS)))
            text.append(_BARS[height], style="red" if value > self._target else "green")
        return text


def _line(moment: Moment) -> str:
    glance = moment.glance
    response = "–" if glance.response_s is None else f"{glance.response_s:.2f} s"
    return (
        f"{moment.run} shedding, {moment.phase}, {moment.elapsed_s:.0f} s: offered {glance.offered:.0f}/s, "
        f"admitted {glance.admitted:.0f}/s, shed {glance.shed:.0f}/s, response {response}, "
        f"backlog {glance.outstanding}"
    )
