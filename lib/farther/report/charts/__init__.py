"""The report's figures, as Vega-Lite specifications."""
