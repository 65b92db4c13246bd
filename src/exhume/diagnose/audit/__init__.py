"""Judge services: what is wrong with each, why, where it comes from, and whether anything on this node needs it."""
