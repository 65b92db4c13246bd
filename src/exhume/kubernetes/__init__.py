"""The Kubernetes API: node conditions, events and taints for the incidents that the recorder marked."""
