"""Read the inventory of a node: one reader per section, all of them bounded."""
