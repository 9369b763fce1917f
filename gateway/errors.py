"""The errors that end a gateway before it starts, each one clear line."""


class SettingError(ValueError):
    """A setting as the operator typed it, and what would do."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(f"{setting}: {problem}")
        self.setting = setting


class ClusterError(RuntimeError):
    """The Kafka cluster is not as the gateway needs it: unreachable, a topic missing, too few partitions."""
