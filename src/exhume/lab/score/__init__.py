"""The score of the diagnosis: scenarios with random parameters are played, diagnosed blindly, and counted."""
