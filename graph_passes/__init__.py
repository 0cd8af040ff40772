"""Passes over TensorFlow graphs: colocation groups, groups, and writing placements."""
