"""Pathologies on demand, and synthetic recordings at scale."""
