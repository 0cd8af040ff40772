"""Passes over TensorFlow graphs: what must share a device, what should, and where it goes."""
