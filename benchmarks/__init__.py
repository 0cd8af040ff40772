"""Training graphs and long comparisons."""
