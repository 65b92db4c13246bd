"""Findings into actions: plans in the order of least harm, and carrying them out within bounds."""
