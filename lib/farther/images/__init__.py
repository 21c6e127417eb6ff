"""Images on their way to a network: reading, preparing and streaming them."""
