"""How updates leave the clients: the only package that draws privacy noise."""
