"""Shared domain types: rows, events, settings, errors, clock. Standard library only."""
