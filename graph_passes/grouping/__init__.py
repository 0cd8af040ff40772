"""Groups: what a placer decides as one."""
