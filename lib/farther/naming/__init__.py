"""Names that users write, the classes behind them, and the checks of their parameters."""
