"""Garbage collection of commands: rare while they run, none when they end."""

from __future__ import annotations

import subprocess
import sys

ENDING = """
import atexit, gc, sys
from privplan.processes import NEW_OBJECTS, collect_rarely

atexit.register(lambda: print(len(gc.get_objects()) < 100))  # runs last: nothing is left to walk
collect_rarely()
assert gc.isenabled() and gc.get_threshold()[0] == NEW_OBJECTS

class Node:
    pass

def cycles(count):
    for _ in range(count):
        one = Node()
        one.itself = one

cycles(3 * NEW_OBJECTS)
assert sum(isinstance(one, Node) for one in gc.get_objects()) <= NEW_OBJECTS
print("done", end=" ")
sys.exit(7)
"""


def test_garbage_is_collected_but_not_at_the_end_of_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("done True\n", "", 7)
