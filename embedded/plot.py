"""The demo's figure: rates and response times over time, with and without shedding."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_WITH, _WITHOUT, _OFFERED = "#1a7f4b", "#b3261e", "#8a8f98"


def plot(result: Mapping[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")  # a file, wherever there is a screen or not
    from matplotlib import pyplot

    figure, (rates, responses) = pyplot.subplots(2, 1, figsize=(10, 7), sharex=True, layout="constrained")
    shed, kept, target = result["series"]["with"], result["series"]["without"], result["target_s"]

    rates.step(*_columns(shed, "offered"), color=_OFFERED, where="post", label="offered")
    rates.step(*_columns(shed, "admitted"), color=_WITH, where="post", label="admitted, with shedding")
    rates.axhline(
        result["capacity_per_s"], color=_WITHOUT, linestyle=":", label="what the job manages, without shedding"
    )
    rates.set_ylabel("records per second")
    rates.set_ylim(0, 1.35 * max([bin["offered"] for bin in shed], default=1))
    rates.legend(loc="upper center", ncols=3, frameon=False)

    responses.plot(*_columns(kept, "mean_s"), color=_WITHOUT, label="without shedding")
    responses.plot(*_columns(shed, "mean_s"), color=_WITH, label="with shedding")
    responses.axhline(target, color="black", linestyle="--", linewidth=1, label=f"target {target:g} s")
    responses.set_yscale("log")
    responses.set_ylabel("mean response time, seconds")
    responses.set_xlabel("seconds, by arrival")
    responses.legend(loc="upper left", frameon=False)
    for axes in (rates, responses):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle("The same surge on the same Spark job")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _columns(series: list[dict[str, Any]], name: str) -> tuple[list[float], list[float]]:
    points = [(bin["t"], bin[name]) for bin in series if bin[name] is not None]
    return [t for t, _ in points], [value for _, value in points]
