"""Text as it is printed and written: escaping, terminals, and what docstrings say."""
