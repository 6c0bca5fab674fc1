"""A git worktree for each attempt: made, looked at, and removed when it holds no work."""
