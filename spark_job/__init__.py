"""The job side of Spillway: time an operator per record, tell the gateways, and the reference Spark job."""
