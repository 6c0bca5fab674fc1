"""The connections over which dispatcherd's publishers reach us: Unix sockets and PostgreSQL."""
