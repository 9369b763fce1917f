"""Real parts for one machine: a Kafka broker from jars, the load generator, the demo, the verifier."""
