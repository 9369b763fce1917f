"""The shedding key of a record: its Kafka key, a header, or a JSON path into its value."""

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from gateway.settings import KeySettings

Headers = Sequence[tuple[str, bytes | None]] | None
# (key, value, headers) -> the key's bytes, or None where the record has none.
KeyReader = Callable[[bytes | None, bytes | None, Headers], bytes | None]


class Unreadable(ValueError):
    """The value cannot be read as the key specification says."""


def key_reader(settings: KeySettings) -> KeyReader:
    if settings.source == "header":
        return _from_header(settings.name or "")
    if settings.source == "json":
        return _from_json(settings.path or "", refuse=settings.unreadable == "park")
    return lambda key, value, headers: key


def _from_header(name: str) -> KeyReader:
    def read(key: bytes | None, value: bytes | None, headers: Headers) -> bytes | None:
        for header, content in headers or ():
            if header == name:
                return content
        return None

    return read


def _from_json(path: str, *, refuse: bool) -> KeyReader:
    steps = path.removeprefix("$.").split(".")

    def read(key: bytes | None, value: bytes | None, headers: Headers) -> bytes | None:
        if not value:
            return None  # a tombstone has no key in it, and is no mistake
        try:
            found: Any = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            if refuse:
                raise Unreadable(f"key.path {path}: the value is not JSON ({error})") from None
            return None
        for step in steps:
            if isinstance(found, dict):
                found = found.get(step)
            elif isinstance(found, list) and step.isdecimal() and int(step) < len(found):
                found = found[int(step)]
            else:
                return None
        if found is None:
            return None
        return found.encode() if isinstance(found, str) else orjson.dumps(found)

    return read
