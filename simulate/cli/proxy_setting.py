"""What `tune` and `pretrain` read: a spec's text, and how its plan trains on public data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulate.proxy.trials import Setting


def proxy_setting(
    spec: Path,
    outputs: Sequence[str],
    *,
    algorithm: str,
    dataset: str,
    partition: str,
    data_dir: Path | None,
) -> tuple[str, Setting]:
    """The text of a spec and the setting of its runs on public or proxy data.

    Args:
        spec: file of the spec.
        outputs: files that will be written.
        algorithm: name of the algorithm, in any case.
        dataset: name of the data.
        partition: partition of their records over the clients.
        data_dir: folder with data sets.

    Raises:
        InputError: for a spec with faults, an unknown algorithm, or an output that is read.
    """
    from privplan.files import load_yaml, read_text, refuse_overwriting
    from privplan.spec.spec import Spec
    from simulate.algorithms.registry import ALGORITHMS
    from simulate.proxy.trials import Setting

    known = Spec.load(spec)
    refuse_overwriting(known.sources(spec), outputs)
    text = read_text(spec, "spec")
    data = load_yaml(text, "spec")
    if known.groups_from is not None:
        data["groups_from"] = str(known.sources(spec)[1].resolve())
    return text, Setting(
        spec=data,
        algorithm=ALGORITHMS.name_of(algorithm),
        dataset=dataset,
        partition=partition,
        data_dir=None if data_dir is None else str(data_dir),
    )
