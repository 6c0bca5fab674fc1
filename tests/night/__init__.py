"""The proofs of agents that are left alone: the real command lines, on the stub of their APIs."""
