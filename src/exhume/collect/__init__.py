"""Sources that read the node's state into rows, one file per source; loop.py runs them all once a second."""
