"""Tables and figures of plans, computed; one module per paper."""
