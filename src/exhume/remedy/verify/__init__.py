"""Proving that a fix helped: measures before and after it, and what their difference is worth."""
