"""Freed memory stays with the process."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from privplan.processes import keep_freed

FAULTS = """
import resource
import numpy as np
from privplan.processes import keep_freed

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        np.ones(5 * 2**20)  # 40 MB: above every threshold that the C library finds by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

given_back = faults()
assert keep_freed() and keep_freed()
faults()
print(given_back, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_blocks_are_used_again_without_asking_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True)
    given_back, kept = map(int, done.stdout.split())
    assert given_back > 100  # pages of up to 2 MB
    assert kept < given_back / 20


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_freed.cache_clear()
    monkeypatch.setattr(os, "confstr", lambda name: None)
    assert not keep_freed()
    keep_freed.cache_clear()
