"""`spillway topics`: Kafka topics as the settings want them, shown, made and checked."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from gateway.cluster import Applied, Cluster
    from gateway.settings import Settings
    from gateway.topic_plan import Plan

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="""Derive the Kafka topics of a pipeline from its settings.

    Your own topics (raw, processing, result) are only adjusted where Spillway would lose or change records
    otherwise; those under the pipeline's name are created as needed. Nothing is ever deleted, no partition
    count and no retention is ever lowered. A usual order: plan, apply, and check in every deployment.""",
)

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="YAML file with the settings; SPILLWAY_… environment variables outrank it "
        "(SPILLWAY_KAFKA__BOOTSTRAP_SERVERS).",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]


@app.command()
def plan(config: Config = None, as_json: Json = False) -> None:
    """Show what `apply` would do, and why; changes nothing.

    Lists topics to create, partitions to add and configurations to change, what already fits, problems
    that only you can solve, and advice. Ends with 0 whether or not anything differs: `check` is the test.
    """
    _, _, found = _look(config)
    if as_json:
        _print_json(_plain(found))
    else:
        _show_plan(found)


@app.command()
def apply(config: Config = None, as_json: Json = False) -> None:
    """Create, grow and configure the topics as `plan` shows it.

    May be repeated at any time: what is already right is left alone. Ends with 1 if a change failed
    or a problem is left that only you can solve; all other changes are made nevertheless.
    """
    from gateway.errors import ClusterError

    _, cluster, wanted = _look(config)
    try:
        applied = cluster.apply(wanted)
    except ClusterError as error:
        _fail(str(error), 1)
    if as_json:
        _print_json(_plain_applied(applied) | {"problems": _plain(wanted)["problems"]})
    else:
        _show_applied(wanted, applied)
    if applied.failed or wanted.problems:
        raise typer.Exit(1)


@app.command()
def check(config: Config = None, as_json: Json = False) -> None:
    """Ends with 1 if a topic differs from what the settings need, else with 0.

    Advice alone (such as LogAppendTime for raw topics) does not fail the check. Made for deployment
    pipelines and init containers: it reads only.
    """
    _, _, found = _look(config)
    if as_json:
        _print_json({"settled": found.settled, **_plain(found)})
    else:
        _show_plan(found)
    if not found.settled:
        raise typer.Exit(1)


def _look(config: Path | None) -> tuple["Settings", "Cluster", "Plan"]:
    from gateway.cluster import Cluster
    from gateway.errors import ClusterError, SettingError
    from gateway.settings import Settings
    from gateway.topic_plan import names, plan

    try:
        settings = Settings.load(config)
        cluster = Cluster(settings)
        return settings, cluster, plan(settings, cluster.describe(names(settings)))
    except SettingError as error:
        _fail(str(error), 2)
    except ClusterError as error:
        _fail(str(error), 1)


def _fail(text: str, code: int) -> NoReturn:
    typer.echo(f"spillway: {text}", err=True)
    raise typer.Exit(code)


def _plain(found: "Plan") -> dict[str, Any]:
    return {
        "create": [{**asdict(item), "configs": dict(item.configs)} for item in found.create],
        "grow": [asdict(item) for item in found.grow],
        "configure": [asdict(item) for item in found.configure],
        "ok": list(found.ok),
        "problems": [asdict(item) for item in found.problems],
        "advice": [asdict(item) for item in found.advice],
    }


def _plain_applied(applied: "Applied") -> dict[str, Any]:
    return {
        "done": [{"topic": item.topic, "what": _what(item), "why": item.why} for item in applied.done],
        "failed": [
            {"topic": item.change.topic, "what": _what(item.change), "error": item.error} for item in applied.failed
        ],
    }


def _print_json(tree: dict[str, Any]) -> None:
    import orjson

    typer.echo(orjson.dumps(tree, option=orjson.OPT_INDENT_2).decode())


def _what(change: Any) -> str:
    from gateway.topic_plan import Create, Grow

    if isinstance(change, Create):
        copies = "" if change.replication < 0 else f", replication {change.replication}"
        configs = "".join(f"\n{name}={value}" for name, value in sorted(change.configs.items()))
        return f"{change.partitions} partition{'s' * (change.partitions != 1)}{copies}{configs}"
    if isinstance(change, Grow):
        return f"partitions {change.was} → {change.to}"
    return f"{change.name}\n{change.was} → {change.to}"


def _show_plan(found: "Plan") -> None:
    rows = [("+", "green", item.topic, f"create, {_what(item)}", item.why) for item in found.create]
    rows += [("~", "yellow", item.topic, _what(item), item.why) for item in found.grow]
    rows += [("~", "yellow", item.topic, _what(item), item.why) for item in found.configure]
    rows += [("!", "red", item.topic, "problem", item.text) for item in found.problems]
    rows += [("i", "cyan", item.topic, "advice", item.text) for item in found.advice]
    rows += [("=", "dim", topic, "fits", "") for topic in found.ok]
    _table(rows, ("topic", "change", "why"))
    _say(
        f"{len(found.create)} to create, {len(found.grow)} to grow, {len(found.configure)} to configure, "
        f"{len(found.ok)} fit, {len(found.problems)} problems, {len(found.advice)} pieces of advice"
    )


def _show_applied(wanted: "Plan", applied: "Applied") -> None:
    rows = [("✓", "green", item.topic, _what(item), item.why) for item in applied.done]
    rows += [("✗", "red", item.change.topic, _what(item.change), item.error) for item in applied.failed]
    rows += [("!", "red", item.topic, "problem", item.text) for item in wanted.problems]
    if rows:
        _table(rows, ("topic", "done", "why"))
    left = len(wanted.problems)
    _say(f"{len(applied.done)} done, {len(applied.failed)} failed, {left} problems left to you")


def _table(rows: list[tuple[str, str, str, str, str]], titles: tuple[str, str, str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("", *titles):
        table.add_column(title, overflow="fold")
    for mark, style, *cells in rows:
        table.add_row(mark, *(Text(cell) for cell in cells), style=style)
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)  # a log or a pipe: long names stay whole
    console.print(table)


def _say(text: str) -> None:
    typer.echo(text)
