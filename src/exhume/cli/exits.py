"""What the exit code of every command means."""

OK = 0
NOTHING = 1  # it ran, and there was nothing to show (or, for a check, there were findings)
FAILED = 2  # it could not run; one sentence on stderr says why and what to do
INTERRUPTED = 130  # Ctrl-C, as shells count it
