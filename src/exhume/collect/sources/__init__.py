"""The sources of rows that the recorder reads every second, one module each."""
