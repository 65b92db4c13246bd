"""Programs that scenarios start as scripts. They need only the standard library."""
