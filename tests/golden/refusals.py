"""Cases that must be refused: the exact words, and the exit code."""

from tests.golden.steps import Case, Edit, Put, Step, call, spec

BASE = """\
name: base
groups:
  - {name: strict, clients: 100, epsilon: 1.0}
  - {name: loose, clients: 200, epsilon: 4.0}
delta: 1.0e-4
rounds: 5
cohort: 30
local: {steps: 5, batch_size: 5, learning_rate: 0.1}
model: {name: mlp-digits, parameters: 2410}
planning: {accountant: rdp, ratios: gdpfed_plus}
"""

RECORDS = """\
name: base
unit: record
groups:
  - {name: one, clients: 2, epsilon: 1.0, records: 50, batch_size: 10}
  - {name: two, clients: 2, epsilon: 4.0, records: 50}
delta: 1.0e-3
rounds: 2
model: {name: mlp-digits, parameters: 2410}
planning: {accountant: rdp}
"""

Changes = tuple[tuple[str, str], ...]

# Each is the spec above with parts replaced; several have more than one fault.
BAD_CLIENTS: dict[str, Changes] = {
    "empty": ((BASE, ""),),
    "not yaml": ((BASE, "name: [1, 2\nrounds: 3\n"),),
    "a key twice": (("rounds: 5", "rounds: 5\nrounds: 6"),),
    "an unknown field": (("rounds: 5", "rounds: 5\nround: 6\nepochs: 3"),),
    "no model, no rounds": (("rounds: 5\n", ""), ("model:", "modell:")),
    "numbers out of range": (("epsilon: 1.0", "epsilon: -1"), ("rounds: 5", "rounds: 0")),
    "not finite": (("epsilon: 1.0", "epsilon: .nan"), ("epsilon: 4.0", "epsilon: .inf")),
    "words for numbers": (("rounds: 5", "rounds: many"), ("cohort: 30", "cohort: [3]")),
    "booleans": (("rounds: 5", "rounds: true"), ("delta: 1.0e-4", "delta: false")),
    "fractions of counts": (("rounds: 5", "rounds: 2.5"), ("clients: 100", "clients: 10.5")),
    "huge": (("rounds: 5", "rounds: 1e300"), ("epsilon: 4.0", "epsilon: 1e300")),
    "delta": (("delta: 1.0e-4", "delta: 2"),),
    "delta law": (("delta: 1.0e-4", "delta: n^1.1"),),
    "delta law of nothing": (("delta: 1.0e-4", "delta: n^-50"),),
    "names": (("name: loose", "name: strict"), ("name: base", "name: ''")),
    "no groups": (("groups:", "groups: []\nlost:"),),
    "groups of no mappings": (("  - {name: strict, clients: 100, epsilon: 1.0}", "  - strict"),),
    "sampling law": (("rounds: 5", "rounds: 5\nsampling: shuffle\nrelation: zero_out"),),
    "cohort too large": (("cohort: 30", "cohort: 301"),),
    "cohort missing": (("cohort: 30\n", ""),),
    "cohort not whole": (("cohort: 30", "cohort: 30.5\nsampling: fixed_size"),),
    "cohort too small": (("cohort: 30", "cohort: 1"),),
    "cohort under full": (("cohort: 30", "cohort: 30\nsampling: full"),),
    "ratios in vain": (("epsilon: 1.0", "epsilon: 1.0, sampling_ratio: 0.1"),),
    "ratios missing": (("ratios: gdpfed_plus", "ratios: given"),),
    "ratios disagree": (
        ("ratios: gdpfed_plus", "ratios: given"),
        ("epsilon: 1.0", "epsilon: 1.0, sampling_ratio: 0.5"),
        ("epsilon: 4.0", "epsilon: 4.0, sampling_ratio: 0.5"),
    ),
    "ratios not whole": (
        ("ratios: gdpfed_plus", "ratios: given"),
        ("cohort: 30", "sampling: fixed_size"),
        ("epsilon: 1.0", "epsilon: 1.0, sampling_ratio: 0.015"),
        ("epsilon: 4.0", "epsilon: 4.0, sampling_ratio: 0.5"),
    ),
    "kept fractions": (("ratios: gdpfed_plus", "ratios: gdpfed_plus, sparsification: [0.5]"),),
    "kept fractions of no kind": (
        ("ratios: gdpfed_plus", "ratios: gdpfed_plus, sparsification: half"),
    ),
    "kept fractions of a joint sum": (
        ("ratios: gdpfed_plus", "ratios: balanced, sparsification: [0.5, 0.5]"),
    ),
    "calibration": (("ratios: gdpfed_plus", "ratios: balanced, calibration: published"),),
    "limits in vain": (("epsilon: 1.0", "epsilon: 1.0, min_weight: 0.1"),),
    "weights": (("ratios: gdpfed_plus", "ratios: gdpfed_plus, weights: optimal"),),
    "weights of records": (("ratios: gdpfed_plus", "ratios: gdpfed_plus, weights: epsilon"),),
    "free groups": (("ratios: gdpfed_plus", "ratios: balanced, free: [groups]"),),
    "free in vain": (("ratios: gdpfed_plus", "ratios: gdpfed_plus, free: [rounds]"),),
    "free without constants": (
        ("ratios: gdpfed_plus", "ratios: balanced, free: [ratios, rounds, clipping_norm]"),
    ),
    "free cohort under full": (
        ("ratios: gdpfed_plus", "ratios: balanced, free: [cohort]"),
        ("cohort: 30", "sampling: full"),
    ),
    "bound without constants": (("ratios: gdpfed_plus", "ratios: bound"),),
    "clipping": (("ratios: gdpfed_plus", "ratios: gdpfed_plus, clipping: {quantiles: 0.5}"),),
    "removed": (
        ("ratios: gdpfed_plus", "ratios: gdpfed_plus, median_clipping: fixed"),
        ("cohort: 30", "horizon: {runs: 2}"),
    ),
    "clipping of groups": (
        ("ratios: gdpfed_plus", "ratios: noise, release: per_group, clipping: {quantile: 1.5}"),
    ),
    "records in vain": (
        ("epsilon: 1.0", "epsilon: 1.0, records: 10, batch_size: 5"),
        ("steps: 5", "epochs: 5"),
    ),
    "unknown accountant": (("accountant: rdp", "accountant: moments"),),
    "many": (
        ("clients: 100", "clients: 0"),
        ("epsilon: 4.0", "epsilon: no"),
        ("rounds: 5", "rounds: -1"),
        ("cohort: 30", "cohort: 0"),
        ("accountant: rdp", "accountant: x, ratios: y, weights: z"),
        (", ratios: gdpfed_plus", ""),
    ),
}

BAD_RECORDS: dict[str, Changes] = {
    "no records": ((", records: 50, batch_size: 10", ""),),
    "batch too large": (("batch_size: 10", "batch_size: 60"),),
    "sampling law": (("rounds: 2", "rounds: 2\nsampling: fixed_size"),),
    "turns": (("rounds: 2", "rounds: 2\ncohort: 1.5"),),
    "weights": (("accountant: rdp", "accountant: rdp, weights: participation"),),
    "planner's choices": (("accountant: rdp", "accountant: rdp, ratios: noise, heterogeneity: 1"),),
    "limits": (("epsilon: 1.0", "epsilon: 1.0, min_weight: 0.1, sampling_ratio: 0.5"),),
}

# Sound specs whose plan does not exist.
INFEASIBLE: dict[str, Changes] = {
    "budget too small": (("epsilon: 1.0", "epsilon: 1e-7"), ("delta: 1.0e-4", "delta: 1e-20")),
    "budget too small, searched": (
        ("epsilon: 1.0", "epsilon: 1e-7"),
        ("delta: 1.0e-4", "delta: 1e-20"),
        ("ratios: gdpfed_plus", "ratios: balanced"),
    ),
    "limits that exclude each other": (
        ("ratios: gdpfed_plus", "ratios: balanced"),
        ("epsilon: 1.0", "epsilon: 1.0, min_sampling_ratio: 0.5, max_sampling_ratio: 0.1"),
    ),
    "limits below the cohort": (
        ("ratios: gdpfed_plus", "ratios: balanced"),
        ("epsilon: 1.0", "epsilon: 1.0, max_sampling_ratio: 0.01"),
        ("epsilon: 4.0", "epsilon: 4.0, max_sampling_ratio: 0.01"),
    ),
    "limits above the cohort": (
        ("ratios: gdpfed_plus", "ratios: balanced"),
        ("epsilon: 1.0", "epsilon: 1.0, min_sampling_ratio: 0.9"),
    ),
    "weights above one": (
        ("ratios: gdpfed_plus", "ratios: balanced"),
        ("epsilon: 1.0", "epsilon: 1.0, min_weight: 0.6"),
        ("epsilon: 4.0", "epsilon: 4.0, min_weight: 0.6"),
    ),
    "uploads": (("ratios: gdpfed_plus", "ratios: balanced, max_uploads: 10"),),
    "nobody would notice": (("delta: 1.0e-4", "delta: 0.5"),),
}


def _specs(base, bad):
    for name, changes in bad.items():
        text = base
        for old, new in changes:
            assert old in text, (name, old)
            text = text.replace(old, new)
        path = f"{name.replace(' ', '-').replace(',', '').replace(chr(39), '')}.yaml"
        yield Put(path, text)
        yield call(f"solve {path} --no-second-opinion")


MECHANISM = "--noise-multiplier 1.5 --sampling-ratio 0.02 --rounds 50"
DELTA = "--delta 6.98e-5"

OPTIONS = (
    "nosuch",
    "solve",
    "solve nosuch.yaml",
    "solve spec.yaml --nosuch",
    "solve spec.yaml --format xml",
    "account --rounds five",
    "account --sampling shuffle",
    "what-if spec.yaml --vary rounds=1:2:2 --workers 0",
    "book",
    "book nosuch",
    "book left --group strict",
    "simulate",
    "simulate plan.json",
    "simulate plan.json --algorithm FedAvg --seed -1",
    "simulate plan.json --algorithm FedAvg --device tpu",
    "compare plan.json --algorithms FedAvg --seeds 0",
    "init --preset nosuch",
    "init --preset digits --schema",
    "init -o .",
    "init -o spec.yaml",
)

ACCOUNTING = (
    f"account {MECHANISM}",
    f"account {MECHANISM} --delta 2 --clients 0",
    f"account {MECHANISM} --delta nan",
    f"account --rounds 5 {DELTA}",
    f"account --noise-multiplier 1 --rounds 5 {DELTA}",
    "account --noise-multiplier 0 --rounds 0 --sampling-ratio 2 --delta 0",
    f"account --noise-multiplier 1e-200 --rounds 100000000000000000000 {DELTA}",
    f"account {MECHANISM} {DELTA} --accountant moments",
    f"account {MECHANISM} {DELTA} --sampling full",
    f"calibrate --epsilon 1 {DELTA} --rounds 5",
    f"calibrate --epsilon -1 {DELTA} --rounds 5 --sampling-ratio 1",
    f"calibrate --epsilon 1 {DELTA} {MECHANISM}",
    f"calibrate --epsilon 1 {DELTA} --rounds 5 --sampling-ratio 0.1 --accountant nosuch",
    f"calibrate --epsilon 1 {DELTA} --solve-for sampling_ratio --sampling full --rounds 5 "
    "--noise-multiplier 1",
    "calibrate --epsilon 1 --solve-for cohort --noise-multiplier 1",
    "calibrate --epsilon 1e-5 --delta 1e-10 --sampling-ratio 1 --rounds 1000",
    f"calibrate --epsilon 1e-3 {DELTA} --solve-for rounds --noise-multiplier 1 --sampling-ratio 1",
    f"account {MECHANISM} {DELTA} --tradeoff curve.doc",
    f"account {MECHANISM} {DELTA} --all --tradeoff",
    f"account --noise-multiplier 1 --sampling-ratio 1e-320 --rounds 5 {DELTA} --tradeoff",
)

SWEEPS = (
    "what-if spec.yaml --vary rounds",
    "what-if spec.yaml --vary rounds=1:2",
    "what-if spec.yaml --vary rounds=a:b:3",
    "what-if spec.yaml --vary rounds=1:inf:3",
    "what-if spec.yaml --vary rounds=0:5:3:log",
    "what-if spec.yaml --vary rounds=1:1e300:3",
    "what-if spec.yaml --vary rounds=1:5:10000 --vary cohort=3:5:10000",
    "what-if spec.yaml --vary name=1:2:2",
    "what-if spec.yaml --vary groups.nobody.epsilon=1:2:2",
    "what-if spec.yaml --vary nothing.there=1:2:2",
    "what-if nosuch.yaml --vary rounds=1:2:2",
    "what-if spec.yaml --frontier",
    "what-if records.yaml --frontier",
    "what-if nosuch.yaml --frontier",
    "what-if spec.yaml --frontier --vary rounds=1:2:2",
    "frontier spec.yaml",
)

RUNS = (
    "simulate nosuch.json --algorithm FedAvg",
    "simulate spec.yaml --algorithm FedAvg",
    "simulate plan.json --algorithm nosuch",
    "simulate plan.json --algorithm FedAvg --dataset nosuch",
    "simulate plan.json --algorithm FedAvg --partition nosuch",
    "simulate plan.json --algorithm FedAvg --partition dirichlet:0",
    "simulate plan.json --algorithm FedAvg --partition natural",
    "simulate plan.json --algorithm FedAvg --partition by-class:nobody=1",
    "simulate plan.json --algorithm FedAvg --partition by-class:strict=99",
    "simulate plan.json --algorithm FedAvg --partition iid:100000",
    "simulate plan.json --algorithm FedAvg --partition dominant:200%",
    "simulate plan.json --algorithm FedAvg --partition pathological:50,2",
    "simulate plan.json --algorithm FedAvg --set rho=0.5",
    "simulate plan.json --algorithm DP-FedSAM --set rho",
    "simulate plan.json --algorithm DP-FedSAM --set rho=-1 --set nosuch=3",
    "simulate plan.json --algorithm Local-only --canaries 10 --device cpu",
    "simulate plan.json --algorithm DP-FedAvg --canaries 100000",
    "simulate plan.json --algorithm planned -o busy",
    "simulate plan.json --algorithm FedAvg -o plan.json",
    "simulate joint.json --algorithm GDPFed+",
    "simulate records.json --algorithm DP-FedAvg",
    "simulate plan.json --algorithm FedAvg --dataset mnist --data-dir nowhere",
    "compare plan.json --algorithms FedAvg,nosuch",
    "compare plan.json --algorithms ,",
    "compare plan.json --algorithms FedAvg -o busy",
    "compare plan.json --algorithms FedAvg --first-seed 18446744073709551615",
    "proxy pilot spec.yaml --dataset nosuch",
    "proxy pilot spec.yaml --dataset digits --clients 100000",
    "proxy pilot spec.yaml --dataset digits -o spec.yaml",
    "verify nosuch",
    "verify busy",
    "verify plan.json",
    "book add nosuch --address book.sqlite",
    "book add busy --address book.sqlite",
    "book show --address nosuch://there",
    "book show --address sqlite://",
    "book show --address plan.json",
    "book show --address nowhere/book.sqlite",
    "book left --group strict --epsilon 1 --address book.sqlite",
    "solve spec.yaml --from-book nowhere/book.sqlite",
)

FILES = (
    "solve .",
    "solve ''",
    "solve latin.yaml",
    "solve plan.json",
    "solve spec.yaml -o spec.yaml",
    "solve spec.yaml -o /dev/null/plan.json",
    "solve spec.yaml --plot plan.doc",
    "explain nosuch.json",
    "explain spec.yaml",
    "explain list.json",
    "explain empty.json",
    "explain none.json",
    "explain bad.json",
    "explain plan.json --bound nosuch",
    "simulate none.json --algorithm FedAvg",
)

# After the plan was edited by hand.
EDITED = ("explain plan.json", "simulate plan.json --algorithm FedAvg --device cpu")

BUDGETS = {
    "no-header": "1,2\n3,4\n",
    "empty": "",
    "only-header": "client,epsilon\n",
    "words": "client,epsilon\na,b\n",
    "negative": "client,epsilon\na,1\nb,-2\n",
    "delta": "client,epsilon,delta\na,1,0.1\nb,2,7\n",
    "columns": "client,epsilon\na,1,2,3\n",
}


def _calls(lines):
    return (call(line) for line in lines)


def _budgets():
    head = "name: base\nrounds: 5\ncohort: 30\nmodel: {name: mlp-digits, parameters: 2410}\n"
    for name, text in BUDGETS.items():
        yield Put(f"{name}.csv", text)
        yield Put(f"{name}.yaml", f"{head}delta: 1.0e-3\ngroups_from: {name}.csv\n")
        yield call(f"solve {name}.yaml")
    for name, more in {
        "nosuch": "groups_from: nosuch.csv\n",
        "number": "groups_from: 5\n",
        "both": "groups_from: words.csv\ngroups: []\ndelta: x\n",
        "count": "groups_from: only-header.csv\nround: 1\n",
    }.items():
        yield Put(f"{name}.yaml", f"{head}{more}")
        yield call(f"solve {name}.yaml")


def refusals():
    """Every case that must be refused."""
    base, records = Put("spec.yaml", BASE), Put("records.yaml", RECORDS)
    plan = call("solve spec.yaml --no-second-opinion --format json -o plan.json")
    yield Case("refused-specs", tuple(_specs(BASE, BAD_CLIENTS)))
    yield Case("refused-record-specs", tuple(_specs(RECORDS, BAD_RECORDS)))
    yield Case("refused-infeasible", tuple(_specs(BASE, INFEASIBLE)))
    yield Case("refused-options", (base, *_calls(OPTIONS)))
    yield Case("refused-accounting", tuple(_calls(ACCOUNTING)))
    yield Case("refused-sweeps", (base, records, *_calls(SWEEPS)))
    yield Case("refused-budgets", tuple(_budgets()))
    files: tuple[Step, ...] = (
        Put("latin.yaml", "name: caf\xe9\n".encode("latin-1")),
        Put("list.json", "[1, 2]\n"),
        Put("empty.json", ""),
        Put("bad.json", '{"spec": {"rounds": 0}, "groups": 5, "certificate": "none"}\n'),
    )
    edit = Edit("plan.json", '"clients": 200', '"clients": 201')
    steps = (base, plan, *files, Put("none.json", "{}"), *_calls(FILES), edit, *_calls(EDITED))
    yield Case("refused-files", steps)
    prepared: tuple[Step, ...] = (
        base,
        plan,
        spec("full-balanced", "joint.yaml"),
        call("solve joint.yaml -o joint.json"),
        spec("records-digits", "records.yaml"),
        call("solve records.yaml -o records.json"),
        Put("busy/notes.txt", "mine\n"),
    )
    yield Case("refused-runs", (*prepared, *_calls(RUNS)))
