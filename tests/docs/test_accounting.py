"""The examples of docs/accounting.md, run."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "accounting.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_example_runs(block):
    if "opacus" in block:
        pytest.importorskip("opacus")
    exec(compile(block, str(PAGE), "exec"), {})
