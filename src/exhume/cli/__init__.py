"""One verb per file; the only place that wires the other packages together."""
