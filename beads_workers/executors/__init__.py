"""What a task runs: a command or an agent, turned into a plan of programs.

``plans.plan`` is the entry; ``core.plans`` holds the words.
"""
