"""Values and rules that all other groups of the core share: settings, messages, limits."""
