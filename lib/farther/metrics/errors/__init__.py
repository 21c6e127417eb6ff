"""Errors of a detector: their causes, and the gain from correcting all errors of a kind."""
