"""Placers that learn; the modules that need TensorFlow import it, this package does not."""
