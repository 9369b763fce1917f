"""`spillway demo`: an overloaded pipeline on this machine, with and without shedding."""

import signal
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from command_line.endings import ends_in_one_line


@ends_in_one_line
def demo(
    seconds: Annotated[
        float, typer.Option(min=8, help="Length of the load in each of the two runs: calm, surge, calm.")
    ] = 48.0,
    target: Annotated[float, typer.Option(min=0.1, help="Target response time in seconds.")] = 2.0,
    trace: Annotated[
        Path | None, typer.Option(help="Play a recorded arrival trace (csv or csv.gz) instead of the three phases.")
    ] = None,
    one_partition: Annotated[
        bool, typer.Option("--one-partition", help="All load on one of the four partitions, at twice one slot.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Write all figures to this file.")] = None,
    plot: Annotated[Path, typer.Option(help="Where the figure goes.")] = Path("artifacts/demo.png"),
    logs: Annotated[Path | None, typer.Option(help="Keep the logs of all processes in this folder.")] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same load.")] = 1,
) -> None:
    """Watch a real Kafka and a real Spark job under a surge of twice their capacity.

    Starts a broker, the reference job (four slots, 20 ms per record), a load generator and a gateway; then the
    same load once more without shedding; then compares both, as measured by a reader of the result topic that
    knows nothing of the gateway. Takes about four minutes, needs Java, leaves nothing behind but the figure.
    """
    from embedded.demo import DemoPlan, run_demo
    from embedded.live_view import LiveView
    from embedded.workload import read_trace

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _writable("--plot", plot)
    if json is not None:
        _writable("--json", json)
    if trace is not None:
        read_trace(trace)  # a bad file ends here, not after a minute
    plan = DemoPlan(target_s=target, seconds=seconds, trace=trace, one_partition=one_partition, seed=seed)
    with tempfile.TemporaryDirectory(prefix="spillway-demo-") as scratch, LiveView(target) as view:
        result = run_demo(plan, folder=logs or Path(scratch), say=view.say, show=view.show)
    if json is not None:
        import orjson

        json.write_bytes(orjson.dumps(result, option=orjson.OPT_INDENT_2))
    _table(result)
    from embedded.plot import plot as draw

    draw(result, plot)
    typer.echo(f"figure: {plot}")
    if complaints := [f"{run} shedding: {text}" for run, texts in result["complaints"].items() for text in texts]:
        typer.echo("spillway: the verifier found: " + "; ".join(complaints), err=True)
        raise typer.Exit(1)
    typer.echo("verified: every raw record has its outcome, every admitted one its result, in order")


def _writable(option: str, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab"):
            pass
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be written: {error.strerror}", param_hint=option) from None


def _table(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(title=f"response times by arrival, target {result['target_s']:g} s")
    table.add_column("shedding, phase", no_wrap=True)
    for column in ("mean", "p50", "p95", "p99", "max", "late", "lost"):
        table.add_column(column, justify="right", no_wrap=True)
    for run in ("with", "without"):
        for phase in ("calm1", "surge", "calm2", "all"):
            m = result[run][phase]
            late = f"{100 * m['delayed'] / m['count']:.0f}%" if m["count"] else "–"
            lost = "–" if m["loss"] is None else f"{100 * m['loss']:.0f}%"
            times = [_time(m[name], result["target_s"]) for name in ("mean_s", "p50_s", "p95_s", "p99_s", "max_s")]
            table.add_row(f"{run}, {phase}", *times, late, lost, end_section=phase == "all")
    console.print(table)
    accounting = result["accounting"]
    console.print(
        "with shedding: "
        + ", ".join(f"{accounting[name]:,} {name}" for name in accounting if accounting[name] is not None)
    )
    console.print(
        f"least loss for this target in the surge: {100 * result['least_loss']:.1f} % "
        f"(batch overhead {result['overhead_s'] or 0:.2f} s, {1000 * result['cost_s']:.1f} ms per record); "
        f"the job alone manages {result['capacity_per_s']:.0f} records/s"
    )


def _time(seconds: float | None, target: float) -> str:
    if seconds is None:
        return "–"
    return f"[{'red' if seconds > target else 'green'}]{seconds:.2f}s[/]"
