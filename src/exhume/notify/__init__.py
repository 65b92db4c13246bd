"""Notifications: marked incidents are diagnosed and delivered to commands and webhooks, next to the recorder."""
