"""Pages of papers: results in the rows, columns, order and units of their tables."""
