"""Training scripts that use tf_placer."""
