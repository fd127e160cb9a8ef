"""Faults of the books: the run was honest, its folder is not."""

from privplan.ledger import chained, read_ledger
from privplan.plan import Plan
from privplan.record import LEDGER, PLAN, RunRecord
from tests.sabotage.fault import Fault


def lines(change):
    """Change the lines of the ledger."""

    def tampers(folder):
        text = (folder / LEDGER).read_text().splitlines(keepends=True)
        (folder / LEDGER).write_text("".join(change(text)))

    return tampers


def chained_anew(change):
    """Change the releases, and make the chain and the record fit them."""

    def tampers(folder):
        record = RunRecord.load(folder)
        text = ""
        chain = record.plan_digest
        for release in change(list(read_ledger(folder, record.plan_digest).records)):
            line, chain = chained(release, chain)
            text += line
        (folder / LEDGER).write_text(text)
        record.model_copy(update={"chain": chain}).save(folder)

    return tampers


def _other_plan(folder):
    plan = Plan.load(folder / PLAN)
    groups = tuple(
        group.model_copy(update={"epsilon": 2 * group.epsilon}) for group in plan.groups
    )
    plan.model_copy(update={"groups": groups}).save(folder / PLAN)


def _edited(text):
    return [*text[:4], text[4].replace('"cohort":', '"cohort":1', 1), *text[5:]]


BOOKS = (
    Fault(
        "ledger line deleted",
        "The fifth line of the ledger is taken out.",
        check="ledger",
        words="line 5 does not follow",
        weakens=False,
        tampers=lines(lambda text: [*text[:4], *text[5:]]),
    ),
    Fault(
        "ledger line duplicated",
        "The fifth line stands there twice.",
        check="ledger",
        words="line 6 does not follow",
        weakens=False,
        tampers=lines(lambda text: [*text[:5], *text[4:]]),
    ),
    Fault(
        "ledger lines reordered",
        "The fifth and the sixth line change places.",
        check="ledger",
        words="line 5 does not follow",
        weakens=False,
        tampers=lines(lambda text: [*text[:4], text[5], text[4], *text[6:]]),
    ),
    Fault(
        "ledger line edited",
        "One digit of the fifth line is another.",
        check="ledger",
        words="line 5 does not follow",
        weakens=False,
        tampers=lines(_edited),
    ),
    Fault(
        "ledger cut at its end",
        "The last round's lines are taken out.",
        check="ledger",
        words="not the one that the finished run wrote last",
        weakens=False,
        tampers=lines(lambda text: text[:-3]),
    ),
    Fault(
        "release left out of the ledger",
        "One release is not written down, and the chain is made to fit.",
        check="rounds",
        words="19 of 20 planned rounds are in the ledger",
        weakens=False,
        tampers=chained_anew(lambda lines: [*lines[:4], *lines[5:]]),
    ),
    Fault(
        "plan exchanged after the run",
        "The folder gets a plan with twice the budgets.",
        check="plan",
        words="another plan",
        weakens=False,
        tampers=_other_plan,
    ),
)
