"""The words that everything shares: rows, events, settings, errors, clock. Standard library only."""
