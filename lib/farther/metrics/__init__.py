"""Metrics: pure functions of tables and arrays. Each module is one family of figures."""
