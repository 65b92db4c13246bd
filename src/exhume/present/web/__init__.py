"""The page in the browser: a server that only reads a recording, its workers, and the page's built files."""
