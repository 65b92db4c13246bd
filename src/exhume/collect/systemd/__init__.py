"""systemd: its units over D-Bus (systemctl's text where the bus can't be reached), and their past from the journal."""
