"""What runs in the parser process: reads files of watched processes, confined, and returns tables."""
