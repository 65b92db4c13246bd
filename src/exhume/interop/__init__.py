"""File formats of other tools, one module per format."""
