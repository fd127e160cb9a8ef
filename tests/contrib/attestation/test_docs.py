"""The example of docs/attestation.md, run as a reader runs it, on a shorter plan."""

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from privplan.cli import main

PAGE = (Path(__file__).parents[3] / "docs" / "attestation.md").read_text()


def test_the_example(tmp_path, monkeypatch):
    pytest.importorskip("cryptography")
    monkeypatch.chdir(tmp_path)
    outputs = []
    for line in PAGE.split("```bash\n")[1].split("```")[0].splitlines():
        words, _, target = line.partition(" >> ")
        done = CliRunner().invoke(main, shlex.split(words)[1:])
        assert done.exit_code == 0, (line, done.output)
        if target:
            path = tmp_path / target
            text = path.read_text().replace("rounds: 60", "rounds: 4")
            path.write_text(text + done.stdout)
        outputs.append(" ".join(done.stdout.split()))
    assert "passed: " in outputs[-2]
    assert "replayed (rounds executed again), attested (releases signed before use)" in outputs[-1]
    assert "simulation only" not in outputs[-1]
    assert "1 heads, the last after" in outputs[-1]
