"""Cgroup hierarchies, dying memory cgroups, and what pins them."""
