"""The shape of the code, measured: ``scripts/shape`` prints it, and a test holds it."""
