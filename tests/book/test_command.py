"""``privplan book`` and ``solve --from-book``, as used by a person and by a vandal."""

import json
import math

import pytest
import yaml

from privplan.book.book import Book
from privplan.plan import Plan
from tests.book.runs import run
from tests.command import answer, privplan, refused
from tests.verification.honest_run import spec


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A book of two runs, named by the environment."""
    address = str(tmp_path / "book.sqlite")
    monkeypatch.setenv("PRIVPLAN_BOOK", address)
    for seed in (1, 2):
        added = answer("book", "add", run(tmp_path / f"run{seed}", seed))
        assert "60 releases of loose, strict" in added
    return address


def test_solve_starts_from_the_book(book, tmp_path):
    spec_file = tmp_path / "spec.yaml"
    plan = tmp_path / "plan.json"
    fields = {"name", "rounds", "cohort", "delta", "clipping_norm", "model", "groups"}
    data = spec().model_dump(mode="json", include=fields)
    # Uniform ratios, which take no search.
    data["planning"] = {"ratios": "uniform"}
    spec_file.write_text(yaml.safe_dump(data))
    done = privplan("solve", spec_file, "--from-book", "-o", plan)
    assert done.exit_code == 0, done.stderr
    assert "with the 2 in the book" in done.stderr
    assert Plan.load(plan).group("strict").epsilon < 1.0
    named = answer("solve", spec_file, "--from-book", book, "--format", "json")
    assert Plan.parse(json.loads(named)) == Plan.load(plan)


def test_a_declared_count_composes_with_the_runs(book):
    """Once however often it is declared, and as another accountant composes it."""
    count = (
        "declare",
        "ages",
        "--group",
        "strict",
        "--clients",
        30,
        "--noise",
        "laplace",
    )
    noise_of_four = ("--noise-multiplier", 28, "--count", 4)
    before = Book(book).spent("strict")[0]
    assert "4 times" in answer("book", *count, *noise_of_four)
    assert "holds it already" in answer("book", *count, *noise_of_four)
    after = Book(book).spent("strict")[0]
    assert after.runs == 3
    assert after.kept == before.kept
    assert after.releases == before.releases + 4
    alone = 4 * math.sqrt(2) / 28
    assert before.epsilon_upper < after.epsilon_lower < before.epsilon_upper + alone
    assert before.epsilon_rdp < after.epsilon_rdp < before.epsilon_rdp + alone
    assert "renyi filter" in answer("book", "left", "--group", "strict", "--epsilon", 9)
    for noise, words in (
        (0.01, "noise: must have a bound"),
        (0, "noise"),
        ("inf", "noise_mult"),
    ):
        assert words in refused("book", *count, "--noise-multiplier", noise)
    tiny = ("--noise", "gaussian", "--noise-multiplier", 1e-300)
    assert "noise: must have a bound" in refused("book", *count[:-2], *tiny)
    assert "printable letters" in refused(
        "book", "declare", "a\nb", *count[2:], *noise_of_four
    )


def _corrupt(folder):
    path = folder / "corrupt.sqlite"
    path.write_bytes(b"not a database at all" * 500)
    return path


def _half(folder):
    path = folder / "half.sqlite"
    privplan("book", "add", run(folder / "half"), "--address", path)
    content = bytearray(path.read_bytes())
    content[5000:] = b"\xff" * (len(content) - 5000)
    path.write_bytes(content)
    return path


def _empty(folder):
    path = folder / "empty.sqlite"
    path.touch()
    return path


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (_corrupt, "not a database"),
        (_half, "must be"),
        (_empty, "no table of runs"),
        (lambda folder: folder, "unable to open"),
        (lambda folder: folder / "nosuch.sqlite", "add or declare begins one"),
        (lambda folder: "sqlite://", "in memory"),
        (lambda folder: ":memory:", "must be a file or an SQLAlchemy address"),
        (lambda folder: "nosuch://host/db", "SQLAlchemy knows"),
        (lambda folder: "mysql+pymysql://me:secret@host/db", "needs the driver"),
        (lambda folder: "postgresql://me:secret@host:port/db", "address"),
        (lambda folder: f"postgresql://me:secret@/db?host={folder}", "must be a sound"),
    ],
)
def test_a_hostile_address_is_one_line_without_its_password(tmp_path, address, words):
    line = refused("book", "show", "--address", address(tmp_path))  # type: ignore[operator]
    assert words in line
    assert "secret" not in line


@pytest.mark.parametrize(
    ("where", "words"),
    [("/proc/book.sqlite", "unable to open"), ("corrupt.sqlite", "not a database")],
)
def test_a_book_that_cannot_be_written_is_one_line(tmp_path, where, words):
    _corrupt(tmp_path)
    folder = run(tmp_path / "run")
    line = refused("book", "add", folder, "--address", tmp_path / where)
    assert words in line


@pytest.mark.parametrize(
    "use",
    [
        ("reserve", "{plan}", "--run=a"),
        ("commit", "abc"),
        ("budgets",),
        ("open", "a", "--epsilon=1", "--delta=1e-5", "--ceiling=all"),
        ("open", "a", "--epsilon=-1", "--delta=1e-5"),
    ],
)
def test_a_use_of_accounts_that_fails_makes_no_book(tmp_path, use):
    plan = run(tmp_path / "run") / "plan.json"
    book = tmp_path / "mistyped.sqlite"
    words = [word.format(plan=plan) for word in use]
    line = refused("book", *words, "--address", book)
    assert not book.exists()
    if "--epsilon=-1" not in use:
        assert "book: must be a book that exists" in line


def test_a_book_of_runs_has_no_accounts_and_gets_none(tmp_path):
    folder = run(tmp_path / "run")
    book = tmp_path / "book.sqlite"
    answer("book", "add", folder, "--address", book)
    before = book.read_bytes()
    budgets = answer("book", "budgets", "--format", "json", "--address", book)
    assert json.loads(budgets) == []
    line = refused(
        "book", "reserve", folder / "plan.json", "--run=a", "--address", book
    )
    assert "must be a book with budget accounts (privplan book open makes them)" in line
    assert book.read_bytes() == before


def test_left_refuses_what_it_cannot_answer(book, monkeypatch):
    words = ("book", "left", "--group", "strict", "--rule", "exact", "--address", book)
    line = refused(*words, "--epsilon", "1e308")
    assert "epsilon: must be positive and at most 50" in line
    monkeypatch.setattr("privplan.cli.book.MOST_SECONDS", 1e-3)
    next_run = ("--rounds", "1000", "--sampling-ratio", "0.01")
    line = refused(*words, "--epsilon", "3", *next_run)
    assert "answerable within 0.001 s" in line


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"relation": "replace_one"}, "relation: must be add_remove, that of the acc"),
        ({"unit": "record"}, "unit: must be client in a book's accounts"),
    ],
)
def test_an_account_takes_one_relation_and_one_unit(tmp_path, changed, line):
    """The releases of a record plan would count as if they protected clients."""
    group = {"name": "strict", "clients": 20, "epsilon": 4.0}
    data = {
        "name": "one",
        "delta": 1e-3,
        "rounds": 4,
        "cohort": 10,
        "local": {"steps": 2, "batch_size": 7, "learning_rate": 0.1},
        "model": {"name": "mlp-digits", "parameters": 2410},
        **changed,
    }
    if "unit" in changed:
        group["records"] = 70
    data["groups"] = [group]
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(data))
    plan = tmp_path / "plan.json"
    answer("solve", tmp_path / "spec.yaml", "-o", plan)
    book = tmp_path / "book.sqlite"
    budget = ("--epsilon", 40, "--delta", 0.01)
    answer("book", "open", "strict", *budget, "--address", book)
    reserve = ("book", "reserve", plan, "--run=a", "--address", book)
    assert refused(*reserve).startswith(line)
