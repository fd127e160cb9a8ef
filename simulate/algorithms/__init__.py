"""Algorithms, one module per paper, and their registry.

A module registers its algorithms with ``@register`` when it is imported and composes
them from the components in the rest of ``simulate``. It may import everything below the
runs, and nothing there imports it: algorithms are found by name, in
``registry.ALGORITHMS``.
"""

import sys

from privplan.guidance import Chapter

# Its name in ``simulate`` is what users call to have a list.
sys.modules[__name__].__class__ = Chapter
