"""How training records are spread over clients."""
