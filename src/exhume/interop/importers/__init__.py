"""Importers of other tools' files: a module per format, a common form for their results, and one writer of the
timeline."""
