"""Exit codes of every command. docs/exit-codes.md lists what they mean for each."""

OK = 0
FINDINGS = 1
ERROR = 2
NO_DATA = 3
INTERRUPTED = 130  # 128 + SIGINT, as shells report it

SUMMARY = "Exit codes: 0 ok, 1 findings, 2 error, 3 no data"
