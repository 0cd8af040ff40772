"""The search that needs no choice of a placer: strong starts, improved in simulation."""
