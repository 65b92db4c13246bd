"""Verify that a fix helped: measures before and after it, and whether their difference is significant."""
