"""`spillway run`: the gateway."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from command_line.endings import ends_in_one_line


@ends_in_one_line
def run(
    config: Annotated[
        Path | None, typer.Option(help="YAML file with the settings; SPILLWAY_… variables outrank it.")
    ] = None,
    show_settings: Annotated[
        bool, typer.Option("--show-settings", help="Print the settings in force, secrets masked, and end.")
    ] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run the gateway: raw topics in, admitted records out to the processing topics.

    Stops on Ctrl-C or SIGTERM after delivering what is in flight. `spillway topics apply` creates the topics
    it needs. A setting such as controller.target_seconds can also be given as the environment variable
    SPILLWAY_CONTROLLER__TARGET_SECONDS.
    """
    from gateway.service import Service
    from gateway.settings import Settings

    settings = Settings.load(config)
    if show_settings:
        import yaml  # type: ignore[import-untyped]

        typer.echo(yaml.safe_dump(settings.masked(), sort_keys=False, allow_unicode=True), nl=False)
        return
    if log_level.upper() not in logging.getLevelNamesMapping():
        raise typer.BadParameter(f"{log_level!r} is none of debug, info, warning, error", param_hint="--log-level")
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(message)s")
    Service(settings).run()
