"""What several methods are made of: readers of vectors, subspaces, Gaussians, searches. No module here is a method."""
