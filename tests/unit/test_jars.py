import os
import subprocess
import sys
import textwrap
import threading
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from embedded import jars
from embedded.errors import EmbeddedError
from embedded.jars import KAFKA_BROKER, SPARK_CONNECTOR, JarSet, fetch, ivy_xml, jar_folder

SET = JarSet(name="toy-1", modules=("org.toy:toy:1",))

# Stands in for `java -jar ivy.jar … -retrieve DIR/[artifact]…`: writes two jars, or breaks after one.
FAKE_IVY = f"""\
#!{sys.executable}
import pathlib, sys
folder = pathlib.Path(sys.argv[sys.argv.index("-retrieve") + 1]).parent
folder.mkdir()
(folder / "a.jar").write_text("a")
print("only half of it", flush=True)
if (pathlib.Path(__file__).parent / "broken").exists():
    sys.exit(1)
(folder / "b.jar").write_text("b")
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and a Java that is really the fake Ivy."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(FAKE_IVY)
    java.chmod(0o755)
    monkeypatch.setattr(jars, "find_java", lambda: java)
    monkeypatch.setenv("SPILLWAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_second_fetch_takes_the_jars_from_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = fetch(SET)
    assert [jar.name for jar in first] == ["a.jar", "b.jar"]
    monkeypatch.setattr(jars, "find_java", lambda: pytest.fail("looked for Java again"))
    assert fetch(SET) == first


def test_a_half_finished_fetch_never_counts(cache: Path, tmp_path: Path) -> None:
    broken = tmp_path / "bin" / "broken"
    broken.touch()
    with pytest.raises(EmbeddedError) as caught:
        fetch(SET)
    log = cache / "toy-1.log"
    assert str(log) in str(caught.value)
    assert "only half of it" in log.read_text()
    assert list(cache.iterdir()) == [log]  # nothing else is left behind
    broken.unlink()
    assert len(fetch(SET)) == 2


def test_two_fetches_at_once_both_get_the_whole_set(cache: Path) -> None:
    got: list[int] = []
    threads = [threading.Thread(target=lambda: got.append(len(fetch(SET)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [2, 2, 2, 2]
    assert list(cache.iterdir()) == [jar_folder(SET)]


def test_a_cache_that_cannot_be_written_is_named_with_its_setting(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPILLWAY_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(EmbeddedError) as caught:
        fetch(SET)
    assert str(tmp_path / "file" / "cache") in str(caught.value)
    assert "SPILLWAY_CACHE" in str(caught.value)


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.delenv("SPILLWAY_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert jars.cache_folder() == Path("/h/.cache/spillway")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert jars.cache_folder() == Path("/x/spillway")
    monkeypatch.setenv("SPILLWAY_CACHE", "/s")
    assert jars.cache_folder() == Path("/s")


@pytest.mark.parametrize("jar_set", [KAFKA_BROKER, SPARK_CONNECTOR], ids=lambda jar_set: jar_set.name)
def test_the_ivy_file_asks_for_every_module_by_revision(jar_set: JarSet) -> None:
    asked = ET.fromstring(ivy_xml(jar_set)).iter("dependency")
    assert [f"{d.get('org')}:{d.get('name')}:{d.get('rev')}" for d in asked] == list(jar_set.modules)


def test_another_revision_gets_another_folder() -> None:
    newer = JarSet(name=SET.name, modules=("org.toy:toy:2",))
    assert jar_folder(newer) != jar_folder(SET)


def test_ivy_is_found_without_importing_pyspark() -> None:
    code = """
        import sys
        from embedded.jars import _ivy_jar
        assert _ivy_jar().is_file()
        assert "pyspark" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, env=dict(os.environ))
