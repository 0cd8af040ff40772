"""Placements inside other people's training loops."""
