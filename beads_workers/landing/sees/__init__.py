"""Proof that verify tests the branch, and not the user's checkout. Source: docs/LANDING.md, "What
the check sees"."""
