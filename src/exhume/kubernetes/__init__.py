"""The Kubernetes API: node conditions, events and taints about what the recorder marked."""
