"""Algorithms that update an agent with measured samples."""
