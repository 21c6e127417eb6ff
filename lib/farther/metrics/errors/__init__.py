"""Errors of a detector: the cause of each wrong detection, and what correcting all errors of a kind would be worth."""
