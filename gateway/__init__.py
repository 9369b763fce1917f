"""The running service between the raw and the processing topics."""
