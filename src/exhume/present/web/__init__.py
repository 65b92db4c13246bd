"""The page in the browser: a server that only reads a recording, and the page's built files beside it."""
