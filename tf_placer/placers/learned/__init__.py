"""Learned placers; modules import TensorFlow where they need it, this package does not."""
