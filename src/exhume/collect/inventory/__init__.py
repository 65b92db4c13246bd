"""Node into inventory: one reader for each section, all of them bounded."""
