"""Spark's Python daemon, with what an instrumented task imports loaded once before the workers are forked.

Each worker would otherwise spend seconds of processor time on the same imports, all at once in the first batch;
and on a micro-batch engine one slow batch makes the next ones slow. Nothing is created here, only imported:
producers and their threads must be born after the fork. Use by ``spark.python.daemon.module=spark_job.daemon``.
"""

import importlib

from pyspark.daemon import manager

_HEAVY = (
    "confluent_kafka",
    "numpy",
    "orjson",
    "pandas",
    "pyarrow",
    "pyspark.sql.conversion",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.pandas.types",
    "pyspark.sql.types",
    "pyspark.worker",
    "spark_job.instrument",
    "spark_job.reference",
)


def preload() -> None:
    for name in _HEAVY:
        importlib.import_module(name)


if __name__ == "__main__":
    preload()
    manager()
