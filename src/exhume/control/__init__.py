"""The only package that changes a node: units, containers, files, cgroups, caches and swap.

Only remedy, lab and cli import it. Temporary changes are recorded in the journal before they are made.
"""
