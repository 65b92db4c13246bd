"""Rows and counts -> what they mean. No files and no network here."""
