"""The table of settings in the README, made from the settings classes: `python -m gateway.settings_table`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gateway.settings import Route, Settings

BEGIN, END = "<!-- settings: begin -->", "<!-- settings: end -->"


def settings_table() -> str:
    lines = ["| setting | default | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {default} | {meaning} |" for name, default, meaning in _rows(Settings, "")]
    return "\n".join(lines)


def _rows(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _rows(kind, f"{prefix}{name}.")
        elif Route in get_args(kind):
            yield from _rows(Route, f"{prefix}{name}[].")
        else:
            yield f"{prefix}{name}", _default(field), (field.description or "").replace("|", "or")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value: Any = field.default
    if field.default_factory is not None:
        return "`{}`" if field.default_factory is dict else "made up"
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "`on`" if value else "`off`"
    if isinstance(value, tuple):
        return f"`{list(value)}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def renew(readme: str) -> str:
    """The README's text with the table in step."""
    head, rest = readme.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n{settings_table()}\n{END}{tail}"


if __name__ == "__main__":
    path = Path("README.md")
    path.write_text(renew(path.read_text(encoding="utf-8")), encoding="utf-8")
