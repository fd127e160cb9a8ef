"""Files and locks, text formats, processes and resumable sweeps. Imports only values and errors."""
