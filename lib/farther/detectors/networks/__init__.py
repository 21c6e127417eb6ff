"""Networks that farther builds itself. These modules need PyTorch and torchvision; adapters import them when they run."""
