"""The only package that changes a node: units, containers, files, cgroups, caches and swap.

Only remedy, lab and cli import it. What it changes for a while is in the journal before it is changed.
"""
