"""exhume: a flight recorder and root-cause finder for hidden CPU starvation on Linux nodes."""

__version__ = "0.1.0"
