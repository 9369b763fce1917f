"""What the Spark job has reported: finished offsets per partition, and sums that only grow."""

from collections import Counter
from collections.abc import Mapping

from controller.batch_model import BatchModel
from controller.finished import Finished
from gateway.transport import TopicPartition
from protocol.messages import BatchStarted, Progress


class Feedback:
    """Absorbs the feedback topic in order. Sums cover everything absorbed since this process started."""

    def __init__(self, processing_topics: set[str]) -> None:
        self._topics = processing_topics
        self._finished: dict[TopicPartition, Finished] = {}
        self.batches = BatchModel()
        self.slots = 0
        self.finished = 0  # tuples, each once
        self.worked = 0  # tuples, repeated work included
        self.busy = 0.0  # engine-seconds
        self.responses: Counter[int] = Counter()  # see protocol.histogram
        self.response_sum = 0.0  # seconds, of the tuples counted in responses
        self.messages = 0
        self.foreign = 0
        self._seen_responses: dict[tuple[str, int, str, int], tuple[Mapping[str, int], float]] = {}

    def absorb(self, message: BatchStarted | Progress) -> None:
        if message.topic not in self._topics:
            self.foreign += 1
            return
        self.messages += 1
        self.slots = message.slots
        if isinstance(message, BatchStarted):
            self.batches.started(run=message.run, batch=message.batch, at=message.started_s)
            return
        source = TopicPartition(message.topic, message.partition)
        news = self._finished.setdefault(source, Finished()).report(
            run=message.run,
            batch=message.batch,
            task=message.task,
            first=message.first,
            next=message.next,
            count=message.count,
            busy=message.busy_s,
        )
        self.batches.worked(run=message.run, batch=message.batch, task=message.task, busy=message.busy_s)
        self.finished += news.finished
        self.worked += news.worked
        self.busy += news.busy
        if news.finished:
            self._count_responses(message)

    def finished_of(self, source: TopicPartition) -> Finished | None:
        return self._finished.get(source)

    def _count_responses(self, message: Progress) -> None:
        """Histograms are cumulative within an attempt: only what is new since its last report counts."""
        attempt = (message.run, message.task, message.topic, message.partition)
        before, sum_before = self._seen_responses.get(attempt, ({}, 0.0))
        self.response_sum += message.response_sum_s - sum_before
        for index, count in message.responses.items():
            self.responses[int(index)] += count - before.get(index, 0)
        if message.done:
            self._seen_responses.pop(attempt, None)
        else:
            self._seen_responses[attempt] = (message.responses, message.response_sum_s)
