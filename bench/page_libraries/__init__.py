"""The libraries that could have drawn the page, compared with what draws it."""
