"""The conditions of a start, by what they are about. To add one, add a file with ``CONDITIONS``."""
