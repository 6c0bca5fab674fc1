"""Both ends of a worker's connection."""
