"""Functions taken from SciPy's compiled module against those of its packages."""

import subprocess
import sys

import pytest
import scipy.fft
import scipy.special

from privplan import scipy_functions


@pytest.mark.parametrize("name", scipy_functions._UFUNCS)
def test_values_are_those_of_scipy_special(name: str) -> None:
    arguments = {"bdtr": (3, 9, 0.2), "bdtrc": (3, 9, 0.2), "betaincinv": (2.0, 3.0, 0.4),
                 "chdtr": (3.0, 2.5), "chdtrc": (3.0, 2.5)}.get(name, (0.3,))  # fmt: skip
    ours, theirs = getattr(scipy_functions, name), getattr(scipy.special, name)
    assert ours(*arguments) == theirs(*arguments)


def test_lengths_are_those_of_scipy_fft() -> None:
    sizes = [*range(1, 2000), *(2**k + 1 for k in range(11, 28)), 10_000_019]
    assert [scipy_functions.next_fast_len(n) for n in sizes] == [
        scipy.fft.next_fast_len(n, real=True) for n in sizes
    ]


@pytest.mark.parametrize("missing", [False, True])
def test_the_package_loads_completely_afterwards(missing: bool) -> None:
    block = "sys.modules['scipy.special._ufuncs'] = None\n" if missing else ""
    unblock = "del sys.modules['scipy.special._ufuncs']\n" if missing else ""
    # A blocked compiled module makes the package fail too, so its import is unblocked there.
    patch = (
        "import importlib\nreal = importlib.import_module\n"
        f"def load(name, *rest):\n    if name == 'scipy.special':\n        {unblock or 'pass'}\n"
        "    return real(name, *rest)\nimportlib.import_module = load\n"
    )
    code = (
        f"import sys, scipy\n{block}{patch if missing else ''}"
        "from privplan.scipy_functions import ndtr\n"
        f"assert ('scipy.special' in sys.modules) is {missing}\n"
        "import scipy.special, scipy.stats\n"
        "assert scipy.special.ndtr(0.5) == ndtr(0.5) and scipy.special._ufuncs.ndtr(0) == 0.5\n"
        "assert abs(scipy.stats.norm.cdf(0.5) - ndtr(0.5)) < 1e-15\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
