"""Real ``bd`` for tests."""
