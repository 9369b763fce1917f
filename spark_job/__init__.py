"""The job side of Spillway: time an operator per record, tell the gateways, and the reference Spark job."""

from spark_job.instrument import instrument
from spark_job.publish import Feedback

__all__ = ["Feedback", "instrument"]
