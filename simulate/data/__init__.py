"""Data sets, their readers, and how records are spread over clients."""
