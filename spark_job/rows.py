"""What the user's function may return, turned into Arrow rows: Kafka results by default, or any given schema."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from protocol.topics import ORIGIN

KAFKA_SCHEMA = "key binary, value binary, headers array<struct<key: string, value: binary>>"

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_NONE: list[tuple[str, bytes | None]] = []
_ARROW_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", pa.list_(_HEADER))])


class Record(NamedTuple):
    """One record of a Kafka topic, as the user's function gets it."""

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp_s: float
    headers: tuple[tuple[str, bytes | None], ...] = ()


Function = Callable[[Record], Any]


class Rows(Protocol):
    """Collects results until they are handed to Spark."""

    def add(self, record: Record, result: Any) -> None: ...
    def take(self) -> pa.RecordBatch | None: ...  # None without rows


class KafkaRows:
    """Rows for Spark's Kafka sink; each carries its record's origin on, if it has one."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[list[tuple[str, bytes | None]]] = []
        self._any_headers = False

    def add(self, record: Record, result: Any) -> None:
        if type(result) is bytes and not record.headers:  # the usual case, several times as fast
            self._keys.append(record.key)
            self._values.append(result)
            self._headers.append(_NONE)
        elif isinstance(result, list):
            for one in result:
                self._add(record, one)
        elif result is not None:
            self._add(record, result)

    def _add(self, record: Record, row: Any) -> None:
        key: Any = record.key
        value: Any = None
        headers: Any = ()
        if isinstance(row, (bytes, str)):
            value = row
        elif isinstance(row, tuple) and 2 <= len(row) <= 3:
            key, value, *rest = row
            headers = rest[0] if rest and rest[0] else ()
        elif isinstance(row, dict) and row.keys() <= {"key", "value", "headers"}:
            key, value, headers = row.get("key", key), row.get("value"), row.get("headers") or ()
        else:
            raise TypeError(
                f"the instrumented function returned {type(row).__name__}; without a schema it may return bytes, "
                "str, None, (key, value), (key, value, headers), a dict of these, or a list of them"
            )
        self._keys.append(key.encode() if isinstance(key, str) else key)
        self._values.append(value.encode() if isinstance(value, str) else value)
        kept = [*headers] if headers else []
        if record.headers:
            kept += [header for header in record.headers if header[0] == ORIGIN]
        self._any_headers = self._any_headers or bool(kept)
        self._headers.append(kept)

    def take(self) -> pa.RecordBatch | None:
        if not self._values:
            return None
        columns = [
            pa.array(self._keys, pa.binary()),
            pa.array(self._values, pa.binary()),
            self._header_column(),
        ]
        self._clear()
        return pa.RecordBatch.from_arrays(columns, schema=_ARROW_SCHEMA)

    def _header_column(self) -> pa.Array:
        if not self._any_headers:
            return pa.nulls(len(self._values), pa.list_(_HEADER))
        ends, end = [0], 0
        for headers in self._headers:
            end += len(headers)
            ends.append(end)
        flat = [header for headers in self._headers for header in headers]
        structs = pa.StructArray.from_arrays(
            [
                pa.array([name for name, _ in flat], pa.string()),
                pa.array([value for _, value in flat], pa.binary()),
            ],
            fields=list(_HEADER),
        )
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), structs)


class SchemaRows:
    """Rows of the user's own schema, as tuples in its order or dicts by its names."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._rows: list[Sequence[Any]] = []

    def add(self, record: Record, result: Any) -> None:
        if isinstance(result, list):
            for one in result:
                self._rows.append(self._row(one))
        elif result is not None:
            self._rows.append(self._row(result))

    def _row(self, row: Any) -> Sequence[Any]:
        names = self._schema.names
        if isinstance(row, Mapping) and row.keys() <= set(names):
            return [row.get(name) for name in names]
        if isinstance(row, tuple) and len(row) == len(names):
            return row
        raise TypeError(
            f"the instrumented function returned {row!r:.80}; the schema asks for a tuple, a dict, "
            f"or a list of them, with the columns {', '.join(names)}"
        )

    def take(self) -> pa.RecordBatch | None:
        if not self._rows:
            return None
        columns = [
            pa.array(column, kind)
            for column, kind in zip(zip(*self._rows, strict=True), self._schema.types, strict=True)
        ]
        self._rows = []
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def read(batch: pa.RecordBatch) -> list[Record]:
    """The records of one Arrow batch of Spark's Kafka source."""
    columns = [batch.column(name).to_pylist() for name in ("key", "value", "topic", "partition", "offset")]
    micros = batch.column("timestamp").cast(pa.int64()).to_pylist()
    columns.append([stamp / 1e6 if stamp is not None else -1.0 for stamp in micros])
    headers = _headers(batch)
    if headers is not None:
        columns.append(headers)
    return list(map(Record._make, _filled(columns)))


def _filled(columns: list[list[Any]]) -> Any:
    if len(columns) == 7:
        return zip(*columns, strict=True)
    return zip(*columns, [()] * len(columns[0]), strict=True)


def _headers(batch: pa.RecordBatch) -> list[Any] | None:
    if "headers" not in batch.schema.names:
        return None
    column = batch.column("headers")
    if column.null_count == len(column):
        return None
    flat = column.values
    pairs = list(zip(flat.field(0).to_pylist(), flat.field(1).to_pylist(), strict=True))
    ends = column.offsets.to_pylist()
    return [tuple(pairs[begin:end]) for begin, end in pairwise(ends)]
