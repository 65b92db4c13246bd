"""What an audit has to know of a node next to its services."""
