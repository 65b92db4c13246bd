"""Readers of other tools' files: a module per format, one form that they hand over, one writer of the timeline."""
