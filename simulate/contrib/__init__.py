"""Optional parts of the simulator; the core neither imports nor names them."""
