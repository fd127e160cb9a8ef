"""Special functions of ``scipy.special`` and fast lengths of transforms, without slow imports.

The package ``scipy.special`` imports all of NumPy's submodules and parses 135 docstrings for its
array API wrappers, and ``scipy.fft`` imports that package: a third of the time of a command that
evaluates one tail probability. These are the same NumPy ufuncs, taken from the compiled module that
the package wraps. Where a version of SciPy does not have it, they come from the package.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any

import scipy

_PACKAGE = "scipy.special"
_UFUNCS = (
    "bdtr", "bdtrc", "betaincinv", "chdtr", "chdtrc", "gammaln", "log_ndtr", "ndtr", "ndtri",
)  # fmt: skip


def _compiled() -> ModuleType:
    """Returns the module with SciPy's ufuncs, without running its package where that is possible.

    A compiled submodule needs its package in ``sys.modules`` while it is imported, so an empty one
    takes that place; it is removed again, and a later import of the package finds the submodules.
    """
    if _PACKAGE not in sys.modules:
        spec = importlib.machinery.PathFinder.find_spec(_PACKAGE, scipy.__path__)
        if spec is not None:
            sys.modules[_PACKAGE] = importlib.util.module_from_spec(spec)
            try:
                found = importlib.import_module(f"{_PACKAGE}._ufuncs")
            except ImportError:
                found = None
            finally:
                del sys.modules[_PACKAGE]
            if found is not None and all(hasattr(found, name) for name in _UFUNCS):
                return found
    return importlib.import_module(_PACKAGE)


_functions = _compiled()
bdtr: Any = _functions.bdtr
bdtrc: Any = _functions.bdtrc
betaincinv: Any = _functions.betaincinv
chdtr: Any = _functions.chdtr
chdtrc: Any = _functions.chdtrc
gammaln: Any = _functions.gammaln
log_ndtr: Any = _functions.log_ndtr
ndtr: Any = _functions.ndtr
ndtri: Any = _functions.ndtri


def next_fast_len(size: int) -> int:
    """Smallest product of powers of 2, 3 and 5 that is at least ``size``, for real transforms.

    The lengths of ``scipy.fft.next_fast_len(size, real=True)``.

    Args:
        size: a length, 1 or more.
    """
    best = 1 << (size - 1).bit_length()
    fives = 1
    while fives < best:
        odd = fives
        while odd < best:
            best = min(best, odd << (-(-size // odd) - 1).bit_length())
            odd *= 3
        fives *= 5
    return best
