"""Parts of the simulation benchmark: plain peers, processes, this machine's rate."""
