"""Code that runs in the parser process: confined, it reads files of watched processes and returns tables."""
