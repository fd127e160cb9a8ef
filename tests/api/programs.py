"""What a new user of the Python interface writes: arguments, guesses, programs."""

_RELEASES = "history, accountants, releases"
SIGNATURES = {
    "preset": "name",
    "solve": "spec, second_opinion",
    "account": _RELEASES,
    "calibrate": "epsilon, solve_for, accountant, releases",
    "tradeoff": "history, releases",
    "compose": "history, relation, tolerance",
    "what_if": "spec, vary, workers",
    "frontier": "spec",
    "forecast": "plan, proxy, known_accuracy, coverage",
    "load_run": "folder",
    "verify": "run, plan, rounds",
    "replay": "run, rounds, data_dir, seed",
    "Book": "address",
    "Book.add": "self, run, population, infinite, judging",
    "Book.spent": "self, group, options",
    "Book.left": "self, group, epsilon, delta, population, relation, next_run",
    "Spec.load": "path",
    "Spec.parse": "data, folder",
    "Spec.replace": "self, changes, fields",
    "Plan.load": "path",
    "Plan.save": "self, path",
    "Plan.history": "self, group",
    "Plan.explain": "self",
    "simulate.train": "plan, data, dataset, data_dir, model, model_args, algorithm, seed, folder, "
    "partition, hyperparameters, device, canaries, report, loss, metric, fix, callbacks, track, "
    "noise",
    "simulate.compare": (
        "plan, algorithms, dataset, data, data_dir, seeds, folder, jobs, recipe, "
        "model, model_args, fix, options"
    ),
}
"""Arguments of the stable functions; a change here is a change of the interface."""

_NUMBERS = "noise_multiplier=1.5, rounds=50, delta=1e-5"
GUESSES: dict[str, str | None] = {
    "privplan.solve('spec.yaml', rounds=6)": 'write spec.replace({"rounds": ...})',
    "privplan.account(plan.history('strict'), delta=1e-5, accountants='rdp')['rdp']": None,
    "assert privplan.__version__[0].isdigit()": None,
    "privplan.solve(privplan.preset('digits').plain())": None,
    "privplan.solve('spec.yaml')": None,
    "privplan.solve(plan)": "must be a Spec, a mapping of its fields, or the path of its file",
    "privplan.Spec(name='study', rounds=5)": "must be privplan.Spec.parse(",
    "spec.model_copy(update={'rounds': -5})": "rounds: must be 1 or more, found -5",
    "spec.model_copy(update={'groups.strict.epsilon': 2})": "Spec.replace changes parts",
    "plan.plot()": None,
    "privplan.what_if(plan, {'rounds': [2, 4]}).plot()": None,
    "plan.history('strict')": None,
    "plan.history('strickt')": "did you mean strict?",
    "plan.rounds": "write plan.spec.rounds",
    "plan.delta": "write plan.groups['strict'].delta",
    "plan.groups['loose'].weight, plan.groups[0], [one.name for one in plan.groups]": None,
    "assert len(repr(plan)) < 2000": None,
    "privplan.load_run('run').metrics": None,
    "privplan.RunRecord.load('run')": None,
    "privplan.verify('run', rounds=0).to_json()": None,
    "privplan.account(plan.history('strict'), delta=1e-5, rounds=500)": "rounds: must be left out",
    "privplan.account(noise_multiplier=1, sampling_ratio=0.1, delta=1e-5)": "rounds: must be",
    "privplan.Book('b.sqlite').add(privplan.load_run('run'))": None,
    "privplan.verify(plan)": "must be a run, or its folder, as in privplan.verify('run')",
    "privplan.load_run('run').accuracy": "write run.record.accuracy",
    "assert privplan.verify('run', rounds=0)": "write verdict.kept",
    "simulate.train(plan, dataset='digits', seed=1, folder='run').metrics": None,
    "simulate.train(plan, 'digits')": "write simulate.train(plan, dataset=",
    "simulate.train(plan, data='digits')": "dataset= with a name such as 'digits'",
    "plan.what_if({'groups.strict.epsilon': [1]})": "write privplan.what_if(plan.spec, {",
    "plan['strict']": "write .groups['strict']",
    "plan.history['strict']": "write .history('strict')",
    "plan.groups.get('strict')": "write ['strict']",
    "plan.groups.epsilon": "write ['strict'].epsilon",
    "plan.groups.to_frame()": "write .to_frame() or .plot() of the plan, ",
    "f'{plan.certificate:.2f}'": "is no number; its numbers are .epsilon",
    "assert f'{plan.spec:>2}' == str(plan.spec)": None,
    "plan.certificate + plan.certificate": "privplan.compose(first + second)",
    "privplan.load_run('run').model()": "load_file('bundle/model.safetensors')",
    "round(plan.certificate, 2)": "is no number; its numbers are .epsilon",
    "sum([privplan.compose(plan.history('strict')).epsilon(1e-5)])": "epsilons are not "
    "added; write privplan.account(history + other_history",
    "assert sum([plan.history('strict')] * 2) == 2 * plan.history('strict')": None,
    "assert plan.history('strict') == 2 * plan.history('strict')[0][0]": None,
    "plan.history('strict') + 1": "unsupported operand type(s) for +: 'History' and 'int'",
    "privplan.compose([plan.history('strict'), plan.history('strict')])": None,
    "privplan.SamplingLaw.poisson": "write SamplingLaw.POISSON",
    "privplan.SamplingLaw.POISSON.q": "write release.sampling_ratio, or plan.groups[",
    "privplan.SamplingLaw.FULL.shuffled": "it has FIXED_SIZE, FULL, POISSON, law, of_person",
    "privplan.Relation.REMOVE": "write Relation.ADD_REMOVE",
    "privplan.Relation.ADD_REMOVE.q": "it has ADD_REMOVE, REPLACE_ONE, ZERO_OUT, name",
    "privplan.verify('run', rounds=0) == 'kept'": "write verdict.outcome == 'kept'",
    "assert privplan.verify('run', rounds=0) == privplan.verify('run', rounds=0)": None,
    "privplan.Book('c.sqlite')['strict']": "write .spent('strict')",
    "privplan.Book('c.sqlite').spent['strict']": "write .spent('strict')",
    "simulate.train(plan, dataset='digits', seed=1, folder='run').model.predict": "called "
    "with a tensor: run.model()(records)",
    "simulate.train(plan, dataset='digits', seed=1, folder='run').model().predict([1])": ""
    "predict: simulate.train(...).model() returns a torch module, which is called with "
    "a tensor: run.model()(records)",
    "import pickle; assert type(pickle.loads(pickle.dumps(simulate.train(plan, "
    "dataset='digits', seed=1, folder='run').model())).predict) is str": None,
    "simulate.train(plan, dataset='digits', seed=1, folder='run').model(1)": "write "
    "run.model()(records)",
    "plan.groups['strict'].sigma": "write .noise_multiplier",
    "assert plan.certificate['strict'].epsilon <= 2": None,
    "plan.groups.strict": "write ['strict']",
    "privplan.Plan('plan.json')": "privplan.Plan.load(path)",
    "privplan.get_noise_multiplier(1)": "write privplan.calibrate(",
    "privplan.account(1.5, 0.02, 50, 1e-5)": "write privplan.account(noise_multiplier=",
    "plan.report('page.html')": "on the command line: privplan report",
    "spec.groups['strict'].epsilon = 2": "write spec.replace(",
    "spec.replace(groups={'strict': 2})": 'must be such as {"epsilon": 1}',
    "privplan.what_if(spec, {'strict': [1, 2]})": None,
    "simulate.compare(spec, ['planned'])": "must be a plan, such as privplan.solve(spec)",
    "privplan.train(plan)": "write simulate.train(plan, dataset='digits')",
    "privplan.compare(plan)": "write simulate.compare(plan, [",
    f"privplan.account(sampling_ratio=0.02, {_NUMBERS}).epsilon": None,
    f"privplan.account(sample_rate=0.02, {_NUMBERS})": "write sampling_ratio",
    "privplan.account(noise_multiplier='1.5', rounds=5)": "must be a number, found '1.5'",
    "privplan.calibrate(target_epsilon=1)": "write epsilon",
    "privplan.what_if(spec, 'rounds=2')": 'such as {"groups.strict.epsilon": [0.5, 1, 2]}',
}
"""What people tried first; None where it works, else what the one sentence says."""

PROGRAMS = (
    # 1: what a mechanism costs, and the least noise for a budget
    """
import privplan
noise = privplan.calibrate(1.0, delta=1e-5, sampling_ratio=0.01, rounds=1000)
cost = privplan.account(noise_multiplier=noise, sampling_ratio=0.01, rounds=1000, delta=1e-5)
assert 0.999 < cost.epsilon <= 1.0
""",
    # 2: a plan from budgets in a dictionary
    """
import privplan
plan = privplan.solve({
    "name": "hospitals", "rounds": 20, "cohort": 12,
    "groups": [{"name": "a", "clients": 60, "epsilon": 1},
               {"name": "b", "clients": 60, "epsilon": 4}],
    "model": {"name": "mine", "parameters": 1000},
})
assert plan.groups["a"].weight < plan.groups["b"].weight
assert plan.certificate.of("a").epsilon <= 1
""",
    # 3: a file, changed, solved, saved and read again
    """
import privplan
from pathlib import Path
plan = privplan.solve(privplan.preset("gdpfed-fmnist").replace(rounds=30))
plan.save(Path("plan.json"))
assert privplan.Plan.load("plan.json") == plan and plan.spec.rounds == 30
""",
    # 4: which budget buys what
    """
import privplan
table = privplan.what_if(privplan.preset("digits"), {"groups.strict.epsilon": [1, 2, 4]})
noise = table.groupby("groups.strict.epsilon")["noise_norm"].first()
assert noise.is_monotonic_decreasing
table.plot().save("what-if.png")
""",
    # 5: a table of the plan for a colleague
    """
import privplan
plan = privplan.solve(privplan.preset("digits"))
plan.to_frame()[["group", "epsilon", "epsilon_upper"]].to_csv("plan.csv", index=False)
from pathlib import Path
assert Path("plan.csv").read_text().startswith("group,epsilon,epsilon_upper")
""",
    # 6: what an attacker can achieve against the strict group
    """
import privplan
plan = privplan.solve(privplan.preset("gdpfed-fmnist"))
risk = privplan.tradeoff(plan.history("strict"), delta=plan.groups["strict"].delta)
assert 0 < risk.advantage < 0.25 and risk.true_positives[1] < 0.1
""",
    # 7: train, verify, and look
    """
import privplan, simulate
plan = privplan.solve(privplan.preset("digits-planned").replace(rounds=2))
run = simulate.train(plan, dataset="digits", seed=3, folder="run", device="cpu")
verdict = privplan.verify("run", plan=plan, rounds=0)
assert verdict.outcome == "kept" and run.metrics["round"].tolist() == [1, 2]
run.plot().save("run.png")
""",
    # 8: two methods under one plan
    """
import privplan, simulate
plan = privplan.solve(privplan.preset("digits-planned").replace(rounds=2))
found = simulate.compare(plan, ["planned", "DP-FedAvg"], seeds=2, device="cpu")
table = found.to_frame()
assert set(table["seed"]) == {0, 1} and (table["verdict"] == "kept").all()
found.plot().save("methods.svg")
""",
    # 9: a book over two runs, and what is left
    """
import privplan, simulate
plan = privplan.solve(privplan.preset("digits-planned").replace(rounds=2))
book = privplan.Book("book.sqlite")
for seed in (1, 2):
    simulate.train(plan, dataset="digits", seed=seed, folder=f"run-{seed}", device="cpu")
    assert book.add(f"run-{seed}") == "added"
strict = {one.group: one for one in book.spent()}["strict"]
assert 2 < strict.epsilon_upper < 4
assert book.left("strict", 10).headroom < 8
""",
    # 10: why sampling laws matter
    """
import privplan
one = dict(noise_multiplier=1.5, sampling_ratio=0.02, rounds=50, delta=1e-5)
poisson = privplan.account(**one).epsilon
fixed = privplan.account(sampling="fixed_size", **one).epsilon
assert fixed > 3 * poisson
""",
    # 11: a history whose rounds differ, read at many deltas
    """
import privplan
history = privplan.History([(privplan.Release(1.0, 0.01), 500), (privplan.Release(2.0, 0.1), 20)])
curve = privplan.compose(history)
epsilons = [curve.epsilon(delta).upper for delta in (1e-4, 1e-6, 1e-8)]
assert epsilons == sorted(epsilons)
assert privplan.account(history, delta=1e-6).epsilon <= curve.epsilon(1e-6).upper * 1.01
""",
    # 12: the knee of the cohort
    """
import privplan
table = privplan.frontier(privplan.preset("digits-planned"))
cohorts = table[table["question"] == "cohort"]
assert cohorts["noise"].is_monotonic_decreasing
table.plot().save("frontier.svg")
""",
)
