"""Networks and their checkpoints; these modules import PyTorch, and adapters import them lazily."""
