"""`spillway verify`: the outside verifier at the command line."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from embedded.verifier import Progress, Verification

_ROWS = (
    ("raw", "raw records"),
    ("admitted", "admitted"),
    ("parked", "parked"),
    ("missing", "without an outcome"),
    ("repeated", "with more than one outcome"),
    ("disordered", "out of order"),
    ("misplaced", "in another partition"),
    ("altered", "altered"),
    ("unknown", "of unknown origin"),
    ("results", "with a result"),
    ("results_missing", "admitted without a result"),
    ("results_repeated", "with more than one result"),
    ("results_unadmitted", "with a result but not admitted"),
    ("later", "outcomes of records that came later (not judged)"),
    ("expired", "outcomes of records since deleted (not judged)"),
)
_FAULTS = {"missing", "disordered", "misplaced", "altered", "unknown", "results_missing", "results_unadmitted"}


def verify(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="YAML file with the settings of the pipeline; SPILLWAY_… environment variables outrank it.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
    exactly_once: Annotated[
        bool, typer.Option("--exactly-once", help="More than one outcome of a raw record is a fault, too.")
    ] = False,
    until_now: Annotated[
        bool,
        typer.Option(
            "--raw-until-now/--raw-until-committed",
            help="Judge every raw record that exists when the verifier starts, or only those that the "
            "gateway's consumer group has committed.",
        ),
    ] = True,
    settle: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Wait up to this long for outcomes and results that are still on their way.",
        ),
    ] = 0.0,
) -> None:
    """Read all topics of a pipeline and map each raw record to what became of it.

    Every raw record must have been admitted, shed or parked; what was admitted must be unchanged, in order,
    and have a result if `own_topics.result` names the result topic. Needs `origin: on` and
    `shed.keep: all` during the run. May run beside a live pipeline: what arrives after its start is not
    judged. Reads as a plain consumer, joins no group and writes nothing. Ends with 1 if anything is wrong.
    """
    from embedded.errors import EmbeddedError
    from embedded.verifier import verify as run
    from gateway.errors import ClusterError, SettingError
    from gateway.settings import Settings

    try:
        settings = Settings.load(config)
        with _Watcher() as progress:
            found = run(
                settings,
                exactly_once=exactly_once,
                until_committed=not until_now,
                settle_seconds=settle,
                progress=progress,
            )
    except SettingError as error:
        _fail(str(error), 2)
    except (ClusterError, EmbeddedError) as error:
        _fail(str(error), 1)
    if as_json:
        import orjson

        tree = {"ok": found.ok, "complaints": found.complaints, **asdict(found)}
        typer.echo(orjson.dumps(tree, option=orjson.OPT_INDENT_2).decode())
    else:
        _show(found)
    for complaint in found.complaints:
        typer.echo(f"spillway: {complaint}", err=True)
    if not found.ok:
        raise typer.Exit(1)


class _Watcher:
    """A progress line on stderr while the reading lasts; nothing where stderr is no terminal."""

    def __enter__(self) -> "Progress":
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        console = Console(stderr=True)
        columns = (TextColumn("reading {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Bar(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._bar.start()
        task = self._bar.add_task("topics", total=None)

        def progress(what: str, seen: int, total: int) -> None:
            self._bar.update(task, description=what, completed=seen, total=max(seen, total))

        return progress

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def _fail(text: str, code: int) -> NoReturn:
    typer.echo(f"spillway: {text}", err=True)
    raise typer.Exit(code)


def _show(found: "Verification") -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table("", "records", "for example", box=box.SIMPLE_HEAD, pad_edge=False)
    table.columns[1].justify = "right"
    faults = _FAULTS | ({"repeated"} if found.exactly_once else set())
    for name, text in _ROWS:
        count = getattr(found, name)
        if count is None:
            continue
        style = "red" if count and name in faults else None
        table.add_row(text, f"{count:,}", ", ".join(found.examples.get(name, ())[:3]), style=style)
        if name == "admitted":
            for reason, shed in found.shed.items():
                table.add_row(f"shed: {reason}", f"{shed:,}", "")
    for topic, count in found.unstamped.items():
        table.add_row(f"without spillway.origin in {topic}", f"{count:,}", "", style="red")
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)  # a log or a pipe: long names stay whole
    console.print(table)
    typer.echo("ok" if found.ok else "not ok")
