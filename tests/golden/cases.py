"""All cases: commands whose output must not change, on specs that are stored here."""

from dataclasses import replace

from tests.golden.refusals import refusals
from tests.golden.steps import SPECS, Call, Case, Edit, Put, call, spec

PRESETS = (
    "digits",
    "gdpfed-fmnist",
    "gdpfed-svhn",
    "gdpfed-shakespeare",
    "gdpfed-cifar10",
    "robust-hdp-fmnist",
)

MECHANISM = "--noise-multiplier 1.5 --sampling-ratio 0.02 --rounds 50"


def _presets():
    for name in PRESETS:
        steps = (
            call(f"init --preset {name} -o spec.yaml", "spec.yaml"),
            call("solve spec.yaml --details -o plan.json", "plan.json"),
            call("explain plan.json"),
        )
        yield Case(f"preset-{name}", steps)
    yield Case(
        "init-schema",
        (call("init"), call("init --schema -o schema.json", "schema.json")),
    )


def _plans():
    for path in sorted(SPECS.glob("*.yaml")):
        name = path.stem
        budgets = (
            (spec("budgets.csv", "budgets.csv"),) if name == "budgets-from-file" else ()
        )
        steps = (
            spec(name),
            *budgets,
            call("solve spec.yaml --details -o plan.json", "plan.json"),
            call("explain plan.json"),
            call("explain plan.json --format json"),
        )
        yield Case(f"plan-{name}", steps)
    steps = (
        spec("full-balanced"),
        call("solve spec.yaml --format json --plot plan.png"),
    )
    yield Case("solve-json", steps)


def _accounting():
    delta = "--delta 6.98e-5"
    full = "--noise-multiplier 2 --rounds 10 --delta 1e-5 --sampling full"
    account = (
        f"account {MECHANISM} {delta}",
        f"account {MECHANISM} {delta} --format json",
        f"account {MECHANISM} {delta} --sampling fixed_size --relation replace_one",
        f"account {MECHANISM} {delta} --relation zero_out --format json",
        f"account {full} --format json",
        f"account {full} --relation replace_one --format json",
        f"account {full} --relation zero_out",
        f"account {MECHANISM} --clients 6000 --accountant rdp --accountant gdp",
        f"account {MECHANISM} --delta 0.01 --sampling fixed_size --clients 110",
        f"account {MECHANISM} {delta} --relation replace_one --accountant prv",
    )
    yield Case("account", tuple(map(call, account)))
    yield Case(
        "account-all", (call(f"account {MECHANISM} {delta} --all --format json"),)
    )
    question = "calibrate --epsilon 0.5"
    noise = "--noise-multiplier 1.5"
    ratio = "--sampling-ratio 0.02"
    rounds = "--rounds 50"
    json = "--format json"
    law = "--sampling fixed_size --relation replace_one"
    calibrate = (
        f"{question} {delta} {ratio} {rounds}",
        f"{question} {delta} {ratio} {rounds} {json}",
        f"{question} {delta} {ratio} {rounds} --accountant rdp {json}",
        f"{question} {delta} {ratio} {rounds} {law} {json}",
        f"calibrate --epsilon 3 --delta 1e-5 --rounds 20 --sampling full {json}",
        f"{question} {delta} --solve-for sampling_ratio {noise} {rounds} {json}",
        f"{question} {delta} --solve-for rounds {noise} {ratio} {json}",
        f"{question} --solve-for cohort {noise} {rounds} --clients 6000 {json}",
        f"{question} --solve-for delta {MECHANISM} {json}",
        f"calibrate --epsilon 2 {delta} --sampling-ratio 0.1 --rounds 30 --accountant gdp",
    )
    yield Case("calibrate", tuple(map(call, calibrate)))
    tradeoff = (
        call(f"account {MECHANISM} {delta} --tradeoff curve.png", "./"),
        call(f"account {MECHANISM} {delta} --tradeoff {json}"),
        call(f"account {full} --tradeoff {json}"),
        call(f"account {MECHANISM} {delta} --sampling fixed_size --tradeoff {json}"),
    )
    yield Case("tradeoff", tradeoff)


def _sweeps():
    varied = "--vary groups.strict.epsilon=0.5:4:3:log --vary rounds=5:10:2 --workers 1"
    steps = (
        spec("full-balanced"),
        call(f"what-if spec.yaml {varied} -o out", "out/what-if.csv"),
    )
    yield Case(
        "what-if",
        (*steps, call(f"what-if spec.yaml {varied}"), call("what-if spec.yaml")),
    )
    varied = "--vary cohort=1:120:3 --workers 1 -o out"
    steps = (
        spec("fixed-size-uniform"),
        call(f"what-if spec.yaml {varied}", "out/what-if.csv"),
    )
    yield Case("what-if-infeasible", steps)
    frontier = call("what-if spec.yaml --frontier --format json")
    steps = (
        spec("full-balanced"),
        call("what-if spec.yaml --frontier -o out"),
        frontier,
    )
    yield Case("frontier", steps)
    steps = (spec("budgets-from-file"), spec("budgets.csv", "budgets.csv"), frontier)
    yield Case("frontier-budgets", steps)


def _solved(name):
    return spec(name), Call(("solve", "spec.yaml", "--details", "-o", "plan.json"))


RUN_FILES = ("run/", "run/ledger.jsonl", "run/record.json")


def _runs():
    runs = {
        "fedavg": ("digits-short", "--algorithm FedAvg --seed 1"),
        "dp-fedavg-canaries": (
            "digits-short",
            "--algorithm DP-FedAvg --seed 2 --canaries 20",
        ),
        "gdpfed-plus": (
            "digits-short",
            "--algorithm GDPFed+ --seed 3 --partition dirichlet:0.5 --aggregation mean",
        ),
        "planned": ("balanced-joint", "--algorithm planned --seed 4"),
        "planned-quantile": ("quantile-clipping", "--algorithm planned --seed 5"),
        "planned-fixed-size": ("fixed-size-joint", "--algorithm planned --seed 6"),
        "planned-full": ("full-balanced", "--algorithm planned --seed 7"),
        "dpfedavg-records": ("records-digits", "--algorithm DPFedAvg --seed 8"),
        "robust-hdp": (
            "records-digits",
            "--algorithm Robust-HDP --seed 9 --set rows=1000",
        ),
        "dp2-fedsam": (
            "digits-short",
            "--algorithm DP2-FedSAM --seed 10 --set rho=0.05 --partition pathological:2",
        ),
        "time-adaptive": ("digits-short", "--algorithm Time-adaptive --seed 11"),
        "idp-scale": ("digits-short", "--algorithm IDP-FedAvg-Scale --seed 12"),
        "fed-smp": (
            "digits-short",
            "--algorithm Fed-SMP --seed 13 --partition pathological:2",
        ),
    }
    for name, (source, options) in runs.items():
        simulate = f"simulate plan.json {options} --device cpu -o run"
        arguments = tuple(
            "Time-adaptive HDPFL" if word == "Time-adaptive" else word
            for word in simulate.split()
        )
        audit = ("run/audit.json",) if "canaries" in options else ()
        steps = (
            *_solved(source),
            Call(arguments, (*RUN_FILES, *audit)),
            call("verify run --rounds 0 --details"),
            call("verify run --rounds 0 --format json", "run/verdict.json"),
        )
        yield Case(f"run-{name}", steps)
    names = "--algorithms DP-FedAvg,GDPFed+ --seeds 2 --first-seed 1 --device cpu"
    files = ("out/", "out/results.csv")
    compare = call(f"compare plan.json {names} -o out", *files)
    yield Case("compare", (*_solved("digits-short"), compare))
    pilot = "proxy pilot spec.yaml --dataset digits --rounds 2 --clients 8 --seed 1"
    steps = (
        spec("balanced-joint"),
        call(pilot),
        call(f"{pilot} -o new.yaml", "new.yaml"),
    )
    yield Case("pilot", steps)
    listed = (call("simulate --algorithms"), call("simulate --algorithms json"))
    yield Case("algorithms", (*listed, call("simulate --algorithms markdown")))


def _broken_runs():
    """Runs that were changed afterwards, and folders that are used again."""
    simulate = "simulate plan.json --algorithm GDPFed+ --seed 3 --device cpu -o run"
    begun = (*_solved("digits-short"), call(simulate))
    steps = (
        *begun,
        call(simulate),
        call("simulate plan.json --algorithm GDPFed+ --seed 4 --device cpu -o run"),
        Edit("run/ledger.jsonl", '"round":3', '"round":4'),
        call("verify run --rounds 0 --details"),
        call("book add run --address book.sqlite"),
        call(simulate),
    )
    yield Case("broken-ledger", steps)
    verify = call("verify run --rounds 0 --details")
    steps = (
        *begun,
        Edit("run/record.json", '"rounds_done": 4', '"rounds_done": 3'),
        verify,
    )
    yield Case("broken-record", (*steps, call("verify run --rounds 0 --format json")))
    steps = (
        *begun,
        Put("run/record.json", "{"),
        verify,
        Put("run/plan.json", "[]"),
        verify,
    )
    yield Case("broken-files", steps)


def _book():
    book = "--address book.sqlite"
    run = "--algorithm GDPFed+ --device cpu"
    steps = (
        *_solved("digits-short"),
        call(f"simulate plan.json {run} --seed 1 -o one"),
        call(f"simulate plan.json {run} --seed 2 -o two"),
        call(f"book show {book}"),
        *(
            call(f"book add {a} {book}")
            for a in ("one", "two", "two", "two --population other")
        ),
        call(f"book show {book}"),
        call(f"book show --format json {book}"),
        call(f"book show --group strict --delta 1e-4 --relation replace_one {book}"),
        call(f"book left --group strict --epsilon 6 {book}"),
        call(f"book left --group loose --epsilon 30 --rounds 2 --format json {book}"),
        call(f"book left --group strict --epsilon 0.5 {book}"),
        call(f"book left --group nobody --epsilon 5 {book}"),
        call(
            f"book left --group strict --epsilon -5 --rounds 0 --sampling-ratio 2 {book}"
        ),
        Edit("spec.yaml", "epsilon: 3.0", "epsilon: 5.0"),
        Edit("spec.yaml", "epsilon: 6.0", "epsilon: 9.0"),
        Edit("spec.yaml", "epsilon: 12.0", "epsilon: 18.0"),
        call(
            "solve spec.yaml --from-book book.sqlite --rule exact --details -o next.json"
        ),
        Edit("spec.yaml", "epsilon: 9.0", "epsilon: 15.0"),
        Edit("spec.yaml", "epsilon: 18.0", "epsilon: 30.0"),
        call("solve spec.yaml --from-book book.sqlite --details -o filtered.json"),
        Edit("spec.yaml", "epsilon: 5.0", "epsilon: 1.0"),
        call("solve spec.yaml --from-book book.sqlite --details -o never.json"),
    )
    yield Case("book", steps)


# Cases whose like the quick suite has, and which take seconds.
SLOW_CASES = frozenset(
    {
        "book",
        "compare",
        "frontier",
        "frontier-budgets",
        "plan-balanced-joint",
        "plan-bound-constants",
        "plan-budgets-from-file",
        "plan-fixed-size-joint",
        "plan-free-cohort-norm",
        "plan-free-rounds",
        "plan-noise-limits",
        "plan-prv-uniform",
        "plan-quantile-clipping",
        "preset-gdpfed-cifar10",
        "preset-gdpfed-shakespeare",
        "preset-gdpfed-svhn",
        "preset-robust-hdp-fmnist",
        "run-dp2-fedsam",
        "run-dpfedavg-records",
        "run-fed-smp",
        "run-idp-scale",
        "run-planned-fixed-size",
        "run-planned-full",
        "run-planned-quantile",
        "run-robust-hdp",
        "run-time-adaptive",
        "what-if",
    }
)


def _all():
    yield from _presets()
    yield from _plans()
    yield from _accounting()
    yield from _sweeps()
    yield from _runs()
    yield from _broken_runs()
    yield from _book()
    yield from refusals()


CASES = {
    case.name: replace(case, slow=case.slow or case.name in SLOW_CASES)
    for case in _all()
}
"""Every case by its name."""
