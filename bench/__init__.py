"""Costs and speeds of exhume, measured beside the tools that people use now. `make bench` runs all of it."""
