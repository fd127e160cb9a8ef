"""A task of GLUE and a RoBERTa, both from disk, trained together from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from privplan.cli import main
from simulate.models.registry import model
from tests.simulate.data.test_hub import WORDS, tokenizer

datasets = pytest.importorskip("datasets")
transformers = pytest.importorskip("transformers")

SPEC = """
name: sentences
groups:
  - {{name: strict, clients: 6, epsilon: 4.0}}
  - {{name: loose, clients: 6, epsilon: 16.0}}
delta: 0.01
rounds: 3
cohort: 6
sampling: poisson
relation: add_remove
clipping_norm: 1.0
local: {{steps: 6, batch_size: 8, learning_rate: 0.1}}
model: {{name: "roberta:{folder}", parameters: {parameters}}}
planning: {{}}
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Opinions of films in six words, a transformer of two blocks, and a spec that names it."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "library")
    tokenizer(tmp_path)
    parts = {}
    for part, count in {"train": 240, "validation": 60}.items():
        label = np.random.default_rng(count).integers(2, size=count)
        text = [("bad", "good")[value] + " film" * (1 + row % 3) for row, value in enumerate(label)]
        parts[part] = datasets.Dataset.from_dict({"sentence": text, "label": label.tolist()})
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "GLUE" / "sst2"))
    folder = tmp_path / "weights"
    config = transformers.RobertaConfig(
        vocab_size=len(WORDS), max_position_embeddings=130, num_labels=2,
        pad_token_id=WORDS["<pad>"], hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=24, initializer_range=0.2,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        transformers.RobertaForSequenceClassification(config).save_pretrained(folder)
    path = tmp_path / "spec.yaml"
    found = model(f"roberta:{folder}").parameters
    path.write_text(SPEC.format(folder=folder, parameters=found))
    return path


@pytest.mark.parametrize(
    "algorithm",
    ["planned", *(pytest.param(one, marks=pytest.mark.slow) for one in ("FedAvg", "HyperFL-LPM"))],
)
def test_it_trains_and_is_judged(algorithm: str, spec: Path, tmp_path: Path) -> None:
    plan, run = tmp_path / "plan.json", tmp_path / "run"
    asked = ["--algorithm", algorithm, "--dataset", "sst2", "--data-dir", str(tmp_path)]
    for words in (
        ["solve", str(spec), "-o", str(plan)],
        ["simulate", str(plan), *asked, "-o", str(run)],
    ):
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.output
    record = json.loads((run / "record.json").read_text())
    assert record["accuracy"] > (0.9 if algorithm == "FedAvg" else 0.4)
    judged = CliRunner().invoke(main, ["verify", "--rounds=0", "--details", str(run)])
    assert judged.exit_code == (0 if algorithm == "planned" else 4), judged.output
