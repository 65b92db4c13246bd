"""Facts derived from recorded rows: owners, leaks, lifetimes, restarts, core hogs, waits, interrupts."""
