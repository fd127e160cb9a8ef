"""Files, text formats, locks and processes. Imports only values and errors."""
