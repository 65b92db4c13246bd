"""Statistics over many nodes: which are sick, what sets them apart, when it begins, which are at risk."""
