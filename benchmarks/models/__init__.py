"""Training graphs of the device placement papers."""
