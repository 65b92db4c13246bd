"""One file per command, each with `add_options(parser)` and `run(options) -> exit code`."""
