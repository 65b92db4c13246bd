"""systemd: its units over D-Bus, and their past from the journal."""
