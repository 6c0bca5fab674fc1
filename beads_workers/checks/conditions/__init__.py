"""The conditions of a start, one module per subject. To add one, add a file with ``CONDITIONS``."""
