"""The errors that end a job before it starts, each one clear line."""


class SettingError(ValueError):
    """A setting as the operator typed it, and what would do."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(f"{setting}: {problem}")
        self.setting = setting


class JobError(RuntimeError):
    """The job cannot run: no Java, no connector, no broker, no topic, or the query failed."""
