"""What is up to date: kept items, hashes of code, and of files that parameters name."""
