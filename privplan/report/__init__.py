"""Tables, text lines and pictures of plans, verdicts and sweeps; nothing here prints.

May import all packages of ``privplan`` except the command line.
"""

from __future__ import annotations

import sys

from privplan.guidance import Chapter

# Its name in ``privplan`` is that of a command.
sys.modules[__name__].__class__ = Chapter
