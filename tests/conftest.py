"""What all tests share: property-based tests draw the same few examples in each run.

HYPOTHESIS_PROFILE=random draws others, and more of them, as ``make test-all`` does.
"""

import gc
import os

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=30)
settings.register_profile("random", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


def pytest_collection_finish():
    """What all tests have loaded stays, so that no collection of garbage looks at it again."""
    gc.collect()
    gc.freeze()
