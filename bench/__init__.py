"""Costs and speeds of exhume, compared with the tools that people use now. `make bench` runs all of it."""
