"""systemd: its units over D-Bus, and their history from the journal."""
