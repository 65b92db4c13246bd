"""The command line: main, arguments and exit codes; commands/ has one file per command."""
