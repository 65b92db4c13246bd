"""Stop services that should not run, and keep them from being started, in a way that can be undone."""
