"""Networks that group units; the modules that need TensorFlow import it, this package does not."""
