"""Services that should not run: stopping them, and keeping them from being started, so that it can be undone."""
