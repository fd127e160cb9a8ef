"""PyTorch learns of the device before its first backward pass: tests need a process."""

import os

collect_ignore = [] if os.environ.get("PRIVPLAN_PRETEND_DEVICE") else ["test_device.py"]
