"""``privplan pilot``: measure the constants of planning on public or proxy data."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from simulate.cli.options import DATA_DIR, SEED_OPTION, own_of, own_options

WARNING = (
    "pilot: nothing here is private. Clients' updates are looked at one by one, without noise, "
    "and what is measured is written down: the data must be public, or stand in for the private "
    "ones (proxy data)"
)


@click.command("pilot", short_help="Measure the constants of planning on public or proxy data.")
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--dataset", help="Public or proxy data, never the data that need protection.")
@own_options
@DATA_DIR
@click.option("--download", is_flag=True, help="Fetch missing data into the user's cache.")
@click.option(
    "--partition",
    default="iid",
    show_default=True,
    help="Who holds what, as in simulate: how much groups differ decides h.",
)
@click.option("--rounds", type=click.IntRange(min=1), default=10, show_default=True)
@click.option(
    "--clients",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="Clients per round, at most all of own data that name their clients.",
)
@click.option(
    "--records",
    type=click.IntRange(min=1),
    help="Records of a client; if left out, as many as the spec's clients would have of this "
    "data set, at least a mini-batch.",
)
@SEED_OPTION
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    help="json: the measured constants on standard output, instead of the spec or a table.",
)
@click.option("-o", "--output", metavar="SPEC", help="Spec to write; standard output if left out.")
@click.pass_context
def command(
    context: click.Context,
    /,
    spec: Path,
    dataset: str | None,
    data_dir: Path | None,
    download: bool,
    partition: str,
    rounds: int,
    clients: int,
    records: int | None,
    seed: int,
    form: str,
    output: str | None,
    **options: Any,
) -> None:
    """Train SPEC's model for a few rounds WITHOUT privacy, and write what planning needs to know.

    Norms of updates, how much groups differ, curvatures, the loss to gain, variance and
    dissimilarity of gradients go under planning, each with its interval. The same seed gives
    the same file.
    """
    from privplan.accounting.release import SamplingLaw
    from privplan.cli import render
    from privplan.errors import InputError
    from privplan.files import load_yaml, read_text, refuse_overwriting, spec_mapping, write_text
    from privplan.spec.measured import provisional, written
    from privplan.spec.spec import Spec
    from privplan.spec.turns import refuse_turns
    from simulate.proxy.pilot import Pilot, run

    own = own_of(context, options)
    name = dataset if own.data is None else own.data.name
    if name is None:
        raise InputError.one("dataset", "is required without --data", "none")
    if own.metric is not None:
        raise InputError.one("metric", "must be left out: a pilot computes none", str(own.metric))
    before = read_text(spec, "spec")
    named = spec_mapping(before, spec).get("sampling")
    with suppress(ValueError):  # a law that is none is a fault of the spec
        refuse_turns(SamplingLaw(str(named)), "sampling", "a pilot")
    known = provisional(before, spec.parent)
    refuse_overwriting(known.sources(spec), [output])
    pilot = Pilot(
        known, name, rounds, clients, seed, partition, records, data_dir, download,
        own.data, own.model, own.loss,
    )  # fmt: skip
    render.warn(WARNING)
    with render.progress(f"pilot on {name}") as report:
        measured = run(pilot, report)
    text = written(before, measured)
    folder = spec.parent if output is None else Path(output).parent
    Spec.parse(load_yaml(text, "spec"), folder)  # what solve will read
    if output is not None:
        write_text(output, text)
    if form == "json":
        render.data(measured.model_dump(mode="json"))
        return
    if output is None:
        render.text(text.rstrip("\n"))
        return
    rows = [
        [name, f"{number.value:.4g}", f"{number.low:.4g}", f"{number.high:.4g}"]
        for name, number in measured.numbers.items()
    ]
    render.table(
        f"Pilot: {measured.source}", ["constant", "value", "at least", "at most"], rows,
        "intervals of 95%",
    )  # fmt: skip
    render.text(f"wrote {output}")
