"""Metrics of the node and of the recorder, for Prometheus and other collectors."""
