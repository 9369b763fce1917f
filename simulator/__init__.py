"""Virtual time: plants and workloads on which the decision code is tried without Kafka and Spark."""
