"""Fixtures shared by the whole suite live in ``tests/support``."""

pytest_plugins = ["tests.support.bd"]
