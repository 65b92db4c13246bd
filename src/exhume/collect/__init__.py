"""The node -> rows. One file per source; loop.py runs them all once a second."""
