"""The one error of this room: its message is a single line for the person at the terminal."""


class EmbeddedError(Exception):
    """Something the embedded parts need is missing or failed; the text says what would help."""
