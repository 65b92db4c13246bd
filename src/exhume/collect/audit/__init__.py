"""Facts about a node that an audit needs in addition to its services."""
