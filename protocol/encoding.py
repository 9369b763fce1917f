"""Messages to bytes and back: strict, versioned, and refusing what is not ours with a reason."""

from typing import Annotated

import orjson
from pydantic import Field, TypeAdapter, ValidationError

from protocol.messages import Message

MAX_MESSAGE_BYTES = 1_000_000

_MESSAGES: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="kind")])


class Refused(ValueError):
    """The bytes are not a message of this version; the text says why."""


def encode(message: Message) -> bytes:
    return orjson.dumps(message)


def decode(payload: bytes | None) -> Message:
    """The message in ``payload``; raises Refused for anything else, whatever it holds."""
    if not payload:
        raise Refused("empty payload")
    if len(payload) > MAX_MESSAGE_BYTES:
        raise Refused(f"{len(payload)} bytes, more than {MAX_MESSAGE_BYTES}")
    try:
        return _MESSAGES.validate_json(payload)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "message"
        raise Refused(f"{where}: {first['msg']}") from None
