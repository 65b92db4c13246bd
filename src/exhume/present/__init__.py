"""View models (cores, flame, report) and their thin surfaces."""
