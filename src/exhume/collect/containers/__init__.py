"""Containers and pods: identities, names, runtimes."""
