"""``privplan pretrain``: initial parameters trained on public or proxy data."""

from __future__ import annotations

from pathlib import Path

import click

from privplan.sweeps import sweeps_in
from simulate.cli.options import JOBS, SEED_OPTION, FiniteRange, proxy_options

WARNING = (
    "pretrain: the initial parameters reveal the data that they are trained on: these must be "
    "public, or stand in for the private ones (proxy data)"
)


@click.command("pretrain", short_help="Train initial parameters on public or proxy data.")
@click.argument("spec", type=click.Path(path_type=Path))
@proxy_options
@click.option("--partition", default="iid", show_default=True, help="Who holds what, in the test.")
@click.option("--algorithm", default="planned", show_default=True, help="The algorithm to test.")
@click.option(
    "--epochs", type=click.IntRange(min=1, max=1000), default=4, show_default=True,
    help="Times that every record is used.",
)  # fmt: skip
@click.option(
    "--learning-rate", type=FiniteRange(min=0, min_open=True, max=1e6),
    default=0.02, show_default=True,
    help="That of the first epoch; the last one has a tenth of it.",
)  # fmt: skip
@JOBS
@SEED_OPTION
@click.option(
    "-o", "--output", metavar="SPEC", required=True,
    help="Spec to write, and SPEC.npy with the parameters, which the spec names as given here: "
    "relative to the current folder; finished runs are kept in SPEC.pretraining, to resume.",
)  # fmt: skip
@sweeps_in(lambda options: Path(f"{options['output']}.pretraining"))
def command(
    spec: Path,
    dataset: str,
    data_dir: Path | None,
    partition: str,
    algorithm: str,
    epochs: int,
    learning_rate: float,
    jobs: int,
    seed: int,
    output: str,
) -> None:
    """Train SPEC's model on public data; write a copy of SPEC that starts from its parameters.

    First it is tested what they are worth on other classes: parameters trained on half of the
    classes start the spec's run on the other half, with the plan's noise, beside runs from random
    parameters. Where nothing is gained the copy has no initial parameters. The last dense layer is
    drawn at random, since the classes of the private data are other ones; `head: loaded` in the
    spec takes it from the file. The same command resumes.
    """
    from privplan.cli import render
    from privplan.files import write_text
    from simulate.cli.proxy_setting import proxy_setting
    from simulate.proxy.pretraining import PublicTraining, pretrain
    from simulate.proxy.search import pretrained_text

    parameters = Path(f"{output}.npy")
    text, setting = proxy_setting(
        spec,
        [output, str(parameters)],
        algorithm=algorithm,
        dataset=dataset,
        partition=partition,
        data_dir=data_dir,
    )
    render.warn(WARNING)
    training = PublicTraining(epochs=epochs, learning_rate=learning_rate, seed=seed)
    folder = Path(f"{output}.pretraining")
    with render.progress(f"pretrain on {dataset}") as report:
        found = pretrain(setting, training, parameters, folder, jobs, report)
    write_text(output, pretrained_text(text, found))
    if found.warm:
        rows = [
            [start, *(f"{100 * score:.2f}" for score in scores)]
            for start, scores in (("pretrained", found.warm), ("random", found.cold))
        ]
        render.table(
            f"Accuracy % on classes of {dataset} that the parameters were not trained on",
            ["from", *(f"seed {number}" for number in range(len(found.warm)))], rows,
            f"gain {100 * found.gain:+.2f} points, standard error {100 * found.error:.2f}",
        )  # fmt: skip
    else:
        render.warn("too few classes to test the parameters on others: their gain is not known")
    if found.initial is None:
        render.warn("nothing was gained, so the spec starts from random parameters as before")
    elif found.warm and found.gain < 2 * found.error:
        render.warn("the gain is within twice its standard error")
    render.text(f"wrote {output}" + (f" and {parameters}" if found.initial else ""))
