"""Programs that scenarios start, by their file. Each needs nothing but the standard library."""
