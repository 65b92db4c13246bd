"""Notifications: marked incidents are diagnosed and delivered to commands and webhooks, alongside the recorder."""
