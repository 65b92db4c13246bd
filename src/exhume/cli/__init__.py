"""The command line: main, argument parsing and exit codes; commands/ has one file per command."""
