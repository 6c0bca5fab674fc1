"""Worlds in which finished branches land: a repository, and a lander that may die at any moment.

The strategy of the real lander is proved elsewhere (``tests/landing``): this one lands branches one
by one. What is looked for here is the core's half: closed means landed, and nothing is done twice.
"""
