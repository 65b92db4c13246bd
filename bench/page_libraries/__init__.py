"""The libraries that could have drawn the page, beside what draws it."""
