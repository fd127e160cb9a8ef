"""Configurations as documentation writes them, single traps, and values of a script."""

from typing import NamedTuple

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant

from privplan.contrib.lint.judge import ALARMS, UNDETERMINED, lint
from privplan.contrib.lint.reading import Options
from privplan.contrib.lint.script import UNKNOWN, Script

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
NAMED = ("model, optimizer, train_loader = ", "dp, dp_optimizer, private = ")
PRIVATE = (BATCHES, "for images, target in private:"), ("optimizer.step()", "dp_optimizer.step()")
RECORDS = ("poisson", 1.1, 0.01, 1000)
COHORTS = ("fixed", 1.1, 0.1, 30)


class Row(NamedTuple):
    """A configuration: what is replaced in its base, and what lint must say."""

    base: str
    edits: tuple[tuple[str, str], ...] = ()
    expected: int | str = 0
    truth: tuple[str, float, float, int] | None = None


def after(line):
    return "#after", line


def before(line):
    return "#before", line


SINGLE_CLIP = "max_grad_norm=1.0,"
MEDIAN = "float(np.median(norms))"
ROWS = {
    # Opacus
    "opacus tutorial": Row(OPACUS, truth=RECORDS),
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
    "opacus exponential noise": Row(
        OPACUS, (before("scheduler = ExponentialNoise(optimizer, gamma=0.8)"),
                 after("scheduler.step()")), UNDETERMINED,
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
    "opacus new names": Row(OPACUS, (NAMED,
                            *PRIVATE), truth=RECORDS),
    "opacus old loader": Row(OPACUS, (NAMED, PRIVATE[1]), UNDETERMINED),
    "opacus old optimizer": Row(OPACUS, (NAMED, PRIVATE[0]), UNDETERMINED),
    "opacus inner optimizer": Row(
        OPACUS, (("optimizer.step()", "optimizer.original_optimizer.step()"),), UNDETERMINED
    ),
    "opacus new optimizer": Row(
        OPACUS, (after("optimizer = torch.optim.SGD(model.parameters(), lr=0.01)"),), UNDETERMINED
    ),
    "opacus trained before": Row(
        OPACUS, (("privacy_engine = P", "for x, y in train_loader:\n    criterion(model(x), y)."
                  "backward()\n    optimizer.step()\nprivacy_engine = P"),), UNDETERMINED,
    ),
    "opacus accountant": Row(
        OPACUS, (after("privacy_engine.accountant.history = []"),), UNDETERMINED
    ),
    # Flower
    "flower server side": Row(FLOWER, truth=COHORTS),
    "flower less noise": Row(FLOWER, (before("strategy.noise_multiplier = 0.2"),), UNDETERMINED),
    "flower run configuration": Row(
        FLOWER, (("multiplier=1.1", 'multiplier=context.run_config["noise"]'),), UNDETERMINED
    ),
    "flower median": Row(FLOWER, (("strategy = FedAvg(", "strategy = FedMedian("),), "aggregation"),
    "flower own wrapper": Row(
        FLOWER, (("app = ServerApp()", "class Mine(DifferentialPrivacyServerSideFixedClipping):\n"
                  "    def _add_noise(self, arrays): pass\napp = ServerApp()"),
                 ("= DifferentialPrivacyServerSideFixedClipping(\n", "= Mine(\n")), UNDETERMINED,
    ),
    "flower started twice": Row(
        FLOWER, (before("strategy.start(grid=grid, initial_arrays=arrays, num_rounds=60)"),),
        UNDETERMINED,
    ),
    "flower without the wrapper": Row(
        FLOWER, (("strategy = Diff", "wrapped = Diff"),), "no-noise"
    ),
    # pfl
    "pfl in turn": Row(PFL, truth=("full", 1.1, 1.0, 2)),
    "pfl everyone": Row(
        PFL, ((DIRECT, ACCOUNTED.replace("0.1", "1.0").replace("epsilon=2", "epsilon=30")),
              ("size=100", "size=1000")), 0,
    ),
    "pfl in turn as sampled": Row(PFL, ((DIRECT, ACCOUNTED),), "not-sampled"),
    "pfl less noise": Row(PFL, (before("mechanism.relative_noise_stddev *= 0.5"),), UNDETERMINED),
    "pfl twice": Row(PFL, (("Averaging().run(", "Averaging().run(params, backend, model)\n"
                            "FederatedAveraging().run("),), UNDETERMINED),
    "pfl without the mechanism": Row(
        PFL, (("[CentrallyAppliedPrivacyMechanism(mechanism)]", "[WeightByUser()]"),), "no-noise"
    ),
    # NVFlare
    "nvflare svt": Row(NVFLARE, truth=("svt", 0.3, 1.0, 5)),
    "nvflare svt changed": Row(NVFLARE, (before("private.epsilon = 9.0"),), UNDETERMINED),
    "nvflare of evaluation": Row(NVFLARE, (('["train"]', '["validate"]'),), "unfiltered"),
    "nvflare twice": Row(
        NVFLARE, (before("job.simulator_run('a')\njob.simulator_run('b')"),), UNDETERMINED
    ),
    "nvflare of its own kind": Row(
        NVFLARE, (("job.to(private", "job.to(GaussianPrivacy(epsilon=1.0, clip=1.0)"),),
        UNDETERMINED,
    ),
    "nvflare without a filter": Row(
        NVFLARE, (("\njob.to(private", "\n# job.to(private"),), UNDETERMINED
    ),
}  # fmt: skip


def population(of):
    return 60_000 if of == "opacus" else 1000


def reference(truth):
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


TRAINING = """
import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader

loader = DataLoader(records, batch_size=250)
{before}
for _ in range({runs}):
    model = {model}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = PrivacyEngine()
    model, optimizer, private = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader,
        noise_multiplier=1.1, max_grad_norm=1.0,
    )
    for epoch in range(10):
        for images, labels in private:
            {step}
            optimizer.zero_grad()
            loss(model(images), labels).backward()
            optimizer.step()
    print(engine.get_epsilon(delta=1e-6))
"""


def linted(folder, text, name="train.py"):
    """The report on a file of Opacus about 10,000 records."""
    path = folder / name
    path.write_text(text)
    return lint(str(path), "opacus", Options(population=10_000))


def training(model="Net()", step="pass", before="", runs="3"):
    return TRAINING.format(model=model, step=step, before=before, runs=runs)


@pytest.fixture(scope="module")
def one_run():
    """Epsilon of one training, by another library."""
    event = dp_accounting.PoissonSampledDpEvent(0.025, dp_accounting.GaussianDpEvent(1.1))
    return float(PLDAccountant().compose(event, 400).get_epsilon(1e-6))


@pytest.mark.parametrize("runs", ["3", "args.n_runs"])
def test_repeated_trainings_of_new_models_are_one_run_each(tmp_path, runs, one_run):
    report = linted(tmp_path, training(runs=runs))
    assert report.alarms == ()
    assert report.rows[0].lower == pytest.approx(one_run, rel=5e-3)
    assert any("trains a new model" in note for note in report.notes)


@pytest.mark.parametrize("model", ["copy.deepcopy(shared)", "load_last()", "shared_model"])
def test_a_model_that_goes_on_needs_an_accountant_that_does(tmp_path, model):
    report = linted(tmp_path, training(model))
    assert [alarm.code for alarm in report.alarms] == ["fresh-accountant"]
    assert not any(": holds" in note for note in report.notes)
    assert any("not shown to hold" in note for note in report.notes)


@pytest.mark.parametrize(
    ("step", "alarms"),
    [
        ("images = images.half().float()", []),
        ("x = images.to(torch.float16)", []),
        ("batch_data = batch_data.bfloat16()", []),
        ("model.half()", ["half-precision"]),
        ("self.update = self.update.to(torch.float16)", ["half-precision"]),
    ],
)
def test_half_precision_matters_where_noise_is_added(tmp_path, step, alarms):
    assert [alarm.code for alarm in linted(tmp_path, training(step=step)).alarms] == alarms


def _log(sigma, epsilon):
    epochs = "".join(
        f"Train Epoch: {epoch} \tLoss: 0.4 (ε = {epsilon:.2f}, δ = 1e-06)\n"
        for epoch in range(1, 11)
    )
    return f"batch size: 250\nUsing sigma={sigma} and C=1.0\n{epochs}"


def test_a_log_shows_the_noise_that_was_chosen(tmp_path, one_run):
    sound = linted(tmp_path, _log(1.1, round(one_run + 0.05, 2)), "train.log")
    assert sound.alarms == ()
    assert sound.rows[0].lower == pytest.approx(one_run, rel=5e-3)
    broken = linted(tmp_path, _log(0.7, round(one_run, 2)), "train.log")
    assert [alarm.code for alarm in broken.alarms] == ["understated"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f(3)", 3), ("a = 2\nb = a * 3\nf(b + 1)", 7), ("a = 1\na = 2\nf(a)", 2),
        ("a = 1\nf(a)\na = 2", 1), ("a = 1\nif x:\n    a = 2\nf(a)", UNKNOWN),
        ("if x:\n    a = 2\nelse:\n    a = 2\nf(a)", 2),
        ("a = 1\nfor i in y:\n    f(a)\n    a *= 2", UNKNOWN), ("a = 1\na += 1\nf(a)", UNKNOWN),
        ("import os\nf(os.environ['A'])", UNKNOWN), ("f(args.noise)", UNKNOWN),
        ("c = {'z': 1.5}\nf(c['z'])", 1.5),
        ("from types import SimpleNamespace\nc = SimpleNamespace(z=4)\nf(c.z)", 4),
        ("class C:\n    z = 5\nf(C.z)", 5), ("def g(n=1):\n    f(n)\ng()", 1),
        ("def g(n=1):\n    f(n)\ng(2)\ng(n=2)", 2), ("def g(n=1):\n    f(n)\ng(2)\ng(3)", UNKNOWN),
        ("def g(n=1):\n    f(n)", UNKNOWN), ("n = 10\ndef g():\n    f(n)", 10),
        ("def g():\n    f(n)\nn = 10", 10), ("n = 10\ndef g(n):\n    f(n)", UNKNOWN),
        ("a, b = 1, 2\nf(b)", 2), ("a, b = g()\nf(b)", UNKNOWN),
        ("import math\nf(math.sqrt(4))", 2.0), ("f(1 / 0)", UNKNOWN), ("f(9 ** 9 ** 9)", UNKNOWN),
        ("a = b\nb = a\nf(a)", UNKNOWN),
        ("global_ = 1\ndef g():\n    global global_\n    global_ = 2\nf(global_)", UNKNOWN),
    ],
)  # fmt: skip
def test_the_value_of_an_argument(text, expected):
    (call,) = Script(text).named("f")
    value = call.argument("x", 0)
    assert value is UNKNOWN if expected is UNKNOWN else value == expected


@pytest.mark.parametrize(
    "text",
    [
        "f(context.run_config['noise-multiplier'])",
        "c = context.run_config\nf(c['noise-multiplier'])",
        "c = context.run_config\nf(c.get('noise-multiplier', 9))",
        "def g(cfg):\n    f(float(cfg['noise-multiplier']))\ng(context.run_config)",
    ],
)
def test_the_run_configuration_is_read_under_any_name(text):
    (call,) = Script(text, {"noise_multiplier": 1.5}).named("f")
    assert call.argument("x", 0) == 1.5
    (call,) = Script(text.replace("['noise", "['other").replace("('noise", "('other"),
                     {"noise_multiplier": 1.5}).named("f")  # fmt: skip
    assert call.argument("x", 0) in (UNKNOWN, 9)


def test_a_script_is_not_executed(tmp_path):
    Script(f"open({str(tmp_path / 'made')!r}, 'w').close()\nraise SystemExit(9)")
    assert list(tmp_path.iterdir()) == []
