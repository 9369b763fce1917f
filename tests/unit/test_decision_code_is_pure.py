"""No clock, no dice and no wire in the rooms that decide."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSIDE = sorted(path.relative_to(ROOT) for room in ("controller", "sketches") for path in (ROOT / room).glob("*.py"))
OUTSIDE = {"time", "datetime", "random", "secrets", "asyncio", "threading", "os", "confluent_kafka", "pyspark"}


@pytest.mark.parametrize("path", INSIDE, ids=str)
def test_decision_code_imports_no_clock_no_dice_no_wire(path: Path) -> None:
    tree = ast.parse((ROOT / path).read_text())
    names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    names |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert not {name.split(".")[0] for name in names} & OUTSIDE
