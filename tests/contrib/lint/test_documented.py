"""Configurations as the frameworks' documentation writes them, sound and changed in one place.

Expected: exit code 0 with the epsilon of another library, 5 where a value is not determined, and 6
with the alarm.
"""

from __future__ import annotations

from typing import NamedTuple

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant

from privplan.contrib.lint.judge import ALARMS, UNDETERMINED, lint
from privplan.contrib.lint.reading import Options

OPACUS = """
import torch
from opacus import PrivacyEngine
from opacus.schedulers import ExponentialNoise, LambdaNoise, StepGradClip, StepNoise
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch.utils.data import DataLoader

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
train_loader = DataLoader(train_dataset, batch_size=600)
privacy_engine = PrivacyEngine()
model, optimizer, train_loader = privacy_engine.make_private(
    module=model,
    optimizer=optimizer,
    data_loader=train_loader,
    noise_multiplier=1.1,
    max_grad_norm=1.0,
)
#before
for epoch in range(10):
    for images, target in train_loader:
        optimizer.zero_grad()
        criterion(model(images), target).backward()
        optimizer.step()
    #after
print(f"epsilon {privacy_engine.get_epsilon(1e-5)}")
"""
FLOWER = """
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping, DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping, FedAvg, FedMedian)

app = ServerApp()

@app.main()
def main(grid, context):
    strategy = FedAvg(fraction_train=0.1, fraction_evaluate=0.0, min_available_nodes=1000)
    strategy = DifferentialPrivacyServerSideFixedClipping(
        strategy, noise_multiplier=1.1, clipping_norm=10.0, num_sampled_clients=100)
    #before
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=30)
"""
LOCAL = """
from flwr.client.mod import LocalDpMod
from flwr.clientapp import ClientApp
from flwr.server import ServerConfig, start_server

app = ClientApp(mods=[LocalDpMod(1.0, 2.0, 1.0, 1e-5)])
start_server(config=ServerConfig(num_rounds=1))
"""
PFL = """
import numpy as np
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.federated_averaging import FederatedAveraging, NNAlgorithmParams
from pfl.data import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.privacy import CentrallyAppliedPrivacyMechanism, GaussianMechanism, PLDPrivacyAccountant

sampler = get_user_sampler("minimize_reuse", user_ids)
dataset = FederatedDataset(make_dataset_fn, sampler)
mechanism = GaussianMechanism(clipping_bound=0.5, relative_noise_stddev=1.1)
#before
backend = SimulatedBackend(
    training_data=dataset, val_data=None,
    postprocessors=[CentrallyAppliedPrivacyMechanism(mechanism)])
params = NNAlgorithmParams(central_num_iterations=20, train_cohort_size=100, val_cohort_size=0)
FederatedAveraging().run(params, backend, model, callbacks=[])
"""
ACCOUNTED = """accountant = PLDPrivacyAccountant(
    num_compositions=20, sampling_probability=0.1, mechanism="gaussian", epsilon=2, delta=1e-5)
mechanism = GaussianMechanism.from_privacy_accountant(accountant, 0.5)"""
DIRECT = "mechanism = GaussianMechanism(clipping_bound=0.5, relative_noise_stddev=1.1)"
NVFLARE = """
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
from nvflare.app_common.filters.svt_privacy import SVTPrivacy
from nvflare.app_opt.pt.job_config.fed_avg import FedAvgJob
from nvflare.job_config.api import FilterType

job = FedAvgJob(name="cifar10", n_clients=8, num_rounds=5, initial_model=net)
private = SVTPrivacy(fraction=0.6, epsilon=0.1, noise_var=0.1, gamma=1e-5, epsilon_release=0.2)
#before
job.to(private, "site-1", tasks=["train"], filter_type=FilterType.TASK_RESULT)
"""
BATCHES = "for images, target in train_loader:"
MANAGED = """with BatchMemoryManager(
        data_loader=train_loader, max_physical_batch_size=64, optimizer=optimizer
    ) as loader, tqdm() as bar:
        pass
    for images, target in train_loader:"""
TARGETED = "target_epsilon=3.0,\n    target_delta=1e-5,\n    epochs=10,"
MADE = "privacy_engine.make_private("
RECORDS = ("poisson", 1.1, 0.01, 1000)
COHORTS = ("fixed", 1.1, 0.1, 30)


class Row(NamedTuple):
    """A configuration: what is replaced in its base, and what lint must say."""

    base: str
    edits: tuple[tuple[str, str], ...] = ()
    expected: int | str = 0
    truth: tuple[str, float, float, int] | None = None


def after(line: str) -> tuple[str, str]:
    return "#after", line


def before(line: str) -> tuple[str, str]:
    return "#before", line


SINGLE_CLIP = "max_grad_norm=1.0,"
MEDIAN = "float(np.median(norms))"
ROWS = {
    # Opacus
    "opacus tutorial": Row(OPACUS, truth=RECORDS),
    "opacus ghost": Row(
        OPACUS, ((SINGLE_CLIP, f'{SINGLE_CLIP}\n    grad_sample_mode="ghost",'),), truth=RECORDS
    ),
    "opacus per layer": Row(
        OPACUS,
        ((SINGLE_CLIP, 'max_grad_norm=[0.5, 0.5],\n    clipping="per_layer",'),),
        truth=RECORDS,
    ),
    "opacus memory manager": Row(OPACUS, ((BATCHES, MANAGED),), truth=RECORDS),
    "opacus full batch": Row(
        OPACUS,
        (("batch_size=600", "batch_size=60000"), (SINGLE_CLIP, "max_grad_norm=1.0, "
          "poisson_sampling=False,"), ("noise_multiplier=1.1", "noise_multiplier=9.0")),
        truth=("full", 9.0, 1.0, 10),
    ),
    "opacus learning rate": Row(
        OPACUS,
        (before("scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.7)"),
         after("scheduler.step()")),
        truth=RECORDS,
    ),
    "opacus target": Row(
        OPACUS, ((MADE, "privacy_engine.make_private_with_epsilon("),
                 ("noise_multiplier=1.1,", TARGETED)), 0,
    ),
    "opacus longer than planned": Row(
        OPACUS, ((MADE, "privacy_engine.make_private_with_epsilon("),
                 ("noise_multiplier=1.1,", TARGETED), ("range(10)", "range(25)")), "overrun",
    ),
    "opacus shuffled": Row(
        OPACUS, ((SINGLE_CLIP, "max_grad_norm=1.0,\n    poisson_sampling=False,"),), "shuffled"
    ),
    "opacus exponential noise": Row(
        OPACUS, (before("scheduler = ExponentialNoise(optimizer, gamma=0.8)"),
                 after("scheduler.step()")), UNDETERMINED,
    ),
    "opacus step noise": Row(
        OPACUS, (before("scheduler = StepNoise(optimizer, step_size=2, gamma=0.8)"),
                 after("scheduler.step()")), UNDETERMINED,
    ),
    "opacus lambda noise": Row(
        OPACUS, (before("scheduler = LambdaNoise(optimizer, noise_lambda=decay)"),), UNDETERMINED
    ),
    "opacus step clip": Row(  # could be determined: the noise follows the clipping norm
        OPACUS, (before("scheduler = StepGradClip(optimizer, step_size=2, gamma=0.9)"),),
        UNDETERMINED,
    ),
    "opacus less noise": Row(OPACUS, (after("optimizer.noise_multiplier *= 0.8"),), UNDETERMINED),
    "opacus set noise": Row(
        OPACUS, (before('setattr(optimizer, "noise_multiplier", 0.3)'),), UNDETERMINED
    ),
    "opacus own noise": Row(
        OPACUS, (before("optimizer.add_noise = lambda: None"),), UNDETERMINED
    ),
    "opacus median": Row(
        OPACUS, (after(f"optimizer.max_grad_norm = {MEDIAN}"),), "unpaid-clipping"
    ),
    "opacus median by name": Row(
        OPACUS, (after(f"typical = {MEDIAN}\n    optimizer.max_grad_norm = typical"),),
        "unpaid-clipping",
    ),
    "opacus arguments": Row(OPACUS, (("=1.1", "=args.sigma"),), UNDETERMINED),
    "opacus changed settings": Row(
        OPACUS,
        (("model = Net()", 'cfg = {"noise": 1.1}\ncfg["noise"] = 0.2\nmodel = Net()'),
         ("multiplier=1.1", 'multiplier=cfg["noise"]')),
        UNDETERMINED,
    ),
    "opacus accountant": Row(
        OPACUS, (after("privacy_engine.accountant.history = []"),), UNDETERMINED
    ),
    # Flower
    "flower server side": Row(FLOWER, truth=COHORTS),
    "flower adaptive": Row(
        FLOWER, (("FixedClipping(\n", "AdaptiveClipping(\n"),
                 ("clipping_norm=10.0", "initial_clipping_norm=0.1")), truth=COHORTS,
    ),
    "flower client side": Row(FLOWER, (("PrivacyServerSideFixedClipping(\n",
                                        "PrivacyClientSideFixedClipping(\n"),), truth=COHORTS),
    "flower less noise": Row(FLOWER, (before("strategy.noise_multiplier = 0.2"),), UNDETERMINED),
    "flower clip": Row(FLOWER, (before("strategy.clipping_norm *= 0.9"),), UNDETERMINED),
    "flower fraction": Row(
        FLOWER, (before("strategy.strategy.fraction_train = 0.5"),), UNDETERMINED
    ),
    "flower run configuration": Row(
        FLOWER, (("multiplier=1.1", 'multiplier=context.run_config["noise"]'),), UNDETERMINED
    ),
    "flower evaluation": Row(FLOWER, (("evaluate=0.0", "evaluate=0.5"),), "evaluation"),
    "flower median": Row(FLOWER, (("strategy = FedAvg(", "strategy = FedMedian("),), "aggregation"),
    "flower own wrapper": Row(
        FLOWER, (("app = ServerApp()", "class Mine(DifferentialPrivacyServerSideFixedClipping):\n"
                  "    def _add_noise(self, arrays): pass\napp = ServerApp()"),
                 ("= DifferentialPrivacyServerSideFixedClipping(\n", "= Mine(\n")), UNDETERMINED,
    ),
    "flower local": Row(LOCAL, truth=("local", 2 * 4.844805262605572, 1.0, 1)),
    "flower local rounds": Row(LOCAL, (("num_rounds=1", "num_rounds=30"),), "understated"),
    # pfl
    "pfl in turn": Row(PFL, truth=("full", 1.1, 1.0, 2)),
    "pfl everyone": Row(
        PFL, ((DIRECT, ACCOUNTED.replace("0.1", "1.0").replace("epsilon=2", "epsilon=30")),
              ("size=100", "size=1000")), 0,
    ),
    "pfl in turn as sampled": Row(PFL, ((DIRECT, ACCOUNTED),), "not-sampled"),
    "pfl random": Row(PFL, (('"minimize_reuse"', '"random"'),), "with-replacement"),
    "pfl less noise": Row(PFL, (before("mechanism.relative_noise_stddev *= 0.5"),), UNDETERMINED),
    "pfl clip": Row(PFL, (before("mechanism.clipping_bound = norms.mean()"),), UNDETERMINED),
    "pfl local": Row(
        PFL, ((DIRECT, ACCOUNTED), ("CentrallyAppliedPrivacyMechanism(mechanism)", "mechanism")),
        "local-noise",
    ),
    # NVFlare
    "nvflare svt": Row(NVFLARE, truth=("svt", 0.3, 1.0, 5)),
    "nvflare svt changed": Row(NVFLARE, (before("private.epsilon = 9.0"),), UNDETERMINED),
    "nvflare svt release": Row(NVFLARE, ((", epsilon_release=0.2", ""),), "svt-release"),
    "nvflare incoming": Row(NVFLARE, (("TASK_RESULT", "TASK_DATA"),), "unfiltered"),
    "nvflare percentile": Row(
        NVFLARE, (("= SVTPrivacy(fraction=0.6, epsilon=0.1, noise_var=0.1, gamma=1e-5, "
                   "epsilon_release=0.2)", "= PercentilePrivacy(percentile=10, gamma=0.01)"),),
        "no-noise",
    ),
    "nvflare without a filter": Row(
        NVFLARE, (("\njob.to(private", "\n# job.to(private"),), UNDETERMINED
    ),
}  # fmt: skip
COULD = ("opacus step clip",)
"""Rows that are not determined, although the bound could be."""


def population(of: str) -> int:
    return 60_000 if of == "opacus" else 1000


def reference(truth: tuple[str, float, float, int]) -> float:
    law, noise, ratio, rounds = truth
    if law == "svt":
        return noise * rounds
    event = dp_accounting.GaussianDpEvent(noise / 2 if law == "fixed" else noise)
    if law in ("fixed", "poisson"):
        event = dp_accounting.PoissonSampledDpEvent(ratio, event)
    return float(PLDAccountant().compose(event, rounds).get_epsilon(1e-5))


@pytest.mark.parametrize("name", ROWS)
def test_a_documented_configuration(name, tmp_path):
    row, of, text = ROWS[name], name.partition(" ")[0], ROWS[name].base
    for old, new in row.edits:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "train.py"
    path.write_text(text)
    report = lint(str(path), of, Options(population(of), None, 1e-5))
    said = " ".join(report.notes)
    if isinstance(row.expected, str):
        assert row.expected in [alarm.code for alarm in report.alarms]
        assert report.exit_code == ALARMS
        assert ": holds" not in said or row.expected in ("evaluation", "shuffled", "unfiltered")
        return
    assert report.alarms == ()
    assert report.exit_code == row.expected
    if row.expected == UNDETERMINED:
        assert report.undetermined
        assert ": holds" not in said
    elif row.truth is not None:
        assert report.rows[0].upper == pytest.approx(reference(row.truth), rel=5e-3)


def test_the_table_is_large_and_few_rows_could_be_determined():
    assert len(ROWS) >= 40
    assert len(COULD) <= 2
    assert all(ROWS[name].expected == UNDETERMINED for name in COULD)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('scheduler = StepNoise(optimizer, 2, 0.8)', "noise multiplier: line 19 changes it"),
        ("optimizer.sample_rate = 0.5", "sampling law: line 19 changes it"),
    ],
)  # fmt: skip
def test_the_line_that_changes_a_quantity_is_named(line, said, tmp_path):
    (tmp_path / "train.py").write_text(OPACUS.replace("#before", line))
    report = lint(str(tmp_path / "train.py"), "opacus", Options(60_000, None, 1e-5))
    assert any(one.startswith(said) for one in report.undetermined)
    assert report.claims == ()


def test_claims_in_comments_are_said_not_to_be_read(tmp_path):
    text = OPACUS.replace("#before", '# private with epsilon = 0.1\nprint("eps: 0.2, as promised")')
    (tmp_path / "train.py").write_text(text)
    report = lint(str(tmp_path / "train.py"), "opacus", Options(60_000, None, 1e-5))
    assert [one for one in report.notes if "not read as a claim" in one] == [
        f"line {line} says epsilon {value} in a comment or a text, which is not read as a claim"
        for line, value in ((19, "0.1"), (20, "0.2"))
    ]


@pytest.mark.parametrize(
    ("line", "code"),
    [("noise_schedule: exponential", 5), ("sigma_decay: 0.9", 5), ("noise_schedule: constant", 0)],
)
def test_a_schedule_of_a_configuration(line, code, tmp_path):
    (tmp_path / "run.yaml").write_text(
        "framework: opacus\nnoise_multiplier: 1.1\nbatch_size: 600\nepochs: 10\ndelta: 1e-5\n"
        + line
    )
    report = lint(str(tmp_path / "run.yaml"), "opacus", Options(60_000))
    assert report.exit_code == code
