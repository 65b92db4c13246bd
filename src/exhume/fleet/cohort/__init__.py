"""Statistics over many nodes: who is sick, what sets them apart, when it begins, who is next."""
