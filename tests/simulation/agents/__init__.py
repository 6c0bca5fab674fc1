"""Simulated worlds whose fleet has AI agents: vendors that close accounts, agents that use tokens,
close their own issues and are killed, budgets, reviewers, and a machine that sleeps.

- *vendor*: what is true of an account; the fleet hears of it only by what its agents are told.
- *attempt*: an agent at work on one issue, in a task process of its own.
- *account file*: what all fleets of a user know of their accounts; it outlives every run.
"""
