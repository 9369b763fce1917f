"""Fetches Maven jars once per user, with the Ivy that ships inside pyspark."""

import contextlib
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from rich.console import Console

from embedded.errors import EmbeddedError
from embedded.java import find_java

STALLED_SECONDS = 180.0  # this long without a byte of Ivy's output is a dead mirror
_PLAIN_LINE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """Modules as `org:name:revision`, and everything they need at run time."""

    name: str
    modules: tuple[str, ...]
    overrides: tuple[str, ...] = ()  # revisions to use wherever the module appears
    excludes: tuple[str, ...] = ()  # `org` or `org:name`, already on the class path


KAFKA_BROKER = JarSet(
    name="kafka-broker-4.3.0",
    modules=(
        "org.apache.kafka:kafka_2.13:4.3.0",
        # Kafka declares the logging API only; without a binding the broker is silent.
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
    ),
)
SPARK_CONNECTOR = JarSet(
    name="spark-connector-4.2.0",
    modules=("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",),
    # Not every mirror has the token provider in 4.2.0; the connector works with 4.0.0.
    overrides=("org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",),
    excludes=(  # pyspark brings these along
        "org.apache.hadoop",
        "org.scala-lang",
        "org.scala-lang.modules",
        "org.slf4j",
        "org.xerial.snappy",
        "at.yawk.lz4",
        "org.lz4",
        "com.github.luben",
        "com.google.code.findbugs",
        "org.apache.spark:spark-tags_2.13",
    ),
)


def fetch(jars: JarSet) -> tuple[Path, ...]:
    """The jars of the set, downloaded if this user does not have them yet."""
    folder = jar_folder(jars)
    if not folder.is_dir():
        _download(jars, folder)
    return tuple(sorted(folder.glob("*.jar")))


def cache_folder() -> Path:
    if given := os.environ.get("SPILLWAY_CACHE"):
        return Path(given).expanduser().absolute()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared, "spillway").absolute()
    return Path.home() / ".cache" / "spillway"


def jar_folder(jars: JarSet) -> Path:
    """Exists only when complete: it appears by one rename."""
    key = hashlib.sha256(ivy_xml(jars).encode()).hexdigest()[:10]
    return cache_folder() / f"{jars.name}-{key}"


def ivy_xml(jars: JarSet) -> str:
    lines = ['<ivy-module version="2.0">', '<info organisation="spillway" module="jars"/>', "<dependencies>"]
    for module in jars.modules:
        org, name, rev = map(quoteattr, module.split(":"))
        lines.append(f'<dependency org={org} name={name} rev={rev} conf="*->default,runtime"/>')
    for module in jars.excludes:
        org, _, name = module.partition(":")
        lines.append(f"<exclude org={quoteattr(org)} module={quoteattr(name or '*')}/>")
    for module in jars.overrides:
        org, name, rev = map(quoteattr, module.split(":"))
        lines.append(f"<override org={org} module={name} rev={rev}/>")
    return "\n".join([*lines, "</dependencies>", "</ivy-module>", ""])


def _download(jars: JarSet, folder: Path) -> None:
    command = [str(find_java()), "-jar", str(_ivy_jar())]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{jars.name}-", dir=folder.parent))
    except OSError as error:
        raise EmbeddedError(
            f"the cache folder {folder.parent} is not writable ({error.strerror}); "
            "set SPILLWAY_CACHE to a folder that is"
        ) from None
    log = work / "ivy.log"
    try:
        (work / "ivy.xml").write_text(ivy_xml(jars))
        command += ["-cache", str(work / "ivy"), "-ivy", str(work / "ivy.xml")]
        command += ["-retrieve", f"{work}/jars/[artifact]-[revision].[ext]"]
        if _run(command, log, jars.name) != 0 or not any(work.glob("jars/*.jar")):
            kept = folder.parent / f"{jars.name}.log"
            log.replace(kept)
            raise EmbeddedError(f"the download of {jars.name} failed; its log is {kept}")
        _publish(work / "jars", folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _publish(fetched: Path, folder: Path) -> None:
    try:
        fetched.rename(folder)
    except OSError:
        if not folder.is_dir():  # else another process was first, with the same jars
            raise


def _run(command: list[str], log: Path, name: str) -> int:
    """Ivy's exit code; its output goes to the log, which also tells how far it is."""
    with log.open("wb") as out, _progress(name) as show:
        ivy = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        try:
            size, grown = 0, time.monotonic()
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return ivy.wait(0.2)
                text = log.read_bytes()
                if len(text) > size:
                    size, grown = len(text), time.monotonic()
                elif time.monotonic() - grown > STALLED_SECONDS:
                    return 1
                show(f"{text.count(b'[SUCCESSFUL ]')} of {text.count(b'found ')} jars")
        finally:
            ivy.kill()
            ivy.wait()


@contextlib.contextmanager
def _progress(name: str) -> Iterator[Callable[[str], None]]:
    console = Console(stderr=True, highlight=False)
    text = f"fetching {name} (once per user)"
    if console.is_terminal:
        with console.status(text) as status:
            yield lambda done: status.update(f"{text}: {done}")
        return
    console.print(f"{text} …", soft_wrap=True)
    said = time.monotonic()

    def show(done: str) -> None:
        nonlocal said
        if time.monotonic() - said > _PLAIN_LINE_SECONDS:
            said = time.monotonic()
            console.print(f"{text}: {done}", soft_wrap=True)

    yield show


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")  # found, not imported: that takes a second
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for jar in sorted(Path(place, "jars").glob("ivy-*.jar")):
            return jar
    raise EmbeddedError("pyspark, whose Ivy fetches the jars, is not installed; pip install 'spillway[spark]'")
