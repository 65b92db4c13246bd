"""The page of a whole fleet: a server that only reads a lake, and the pages of incidents over their bundles."""
