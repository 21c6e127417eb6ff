"""Networks, and what reads their checkpoints. These modules need PyTorch; adapters import them when they run."""
