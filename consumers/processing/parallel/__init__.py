"""Work of a strategy done elsewhere: on threads, and in processes that share memory with this one."""
