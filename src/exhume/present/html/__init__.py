"""Reports as one self-contained HTML file: the page's own components, built as a template, with the data embedded."""
