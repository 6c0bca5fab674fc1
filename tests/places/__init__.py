"""Tests of places: machines beside home."""
