"""The device is registered before PyTorch's first backward pass, so its tests need a process."""

import os

collect_ignore = [] if os.environ.get("PRIVPLAN_PRETEND_DEVICE") else ["test_device.py"]
