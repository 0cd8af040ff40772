"""Placers that do not learn; free of TensorFlow."""
