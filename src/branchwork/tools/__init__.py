"""Built-in tools and what they share: paths, truncation, processes."""
