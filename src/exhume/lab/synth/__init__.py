"""Synthetic recordings at the scale of a large node, in the real format, with an incident planted in them."""

from exhume.lab.synth.world import Incident
from exhume.lab.synth.write import SyntheticSummary, write_synthetic

__all__ = ["Incident", "SyntheticSummary", "write_synthetic"]
