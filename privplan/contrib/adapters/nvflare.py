"""NVFlare 2.9: a controller that executes a plan, and a filter of sites that clips.

::

    members = {"strict": ["site-1", ...]}
    job.to_server(GuardedFedAvg("plan.json", "run", members, "model.npz"))
    of_results = FilterType.TASK_RESULT
    job.to(ClippingFilter(0.5), "site-1", tasks=["train"], filter_type=of_results)

The sites of a group are the plan's clients. Sites send differences (``params_type``
DIFF); the controller adds whole models as their difference from what was sent. A recipe
becomes guarded by::

    recipe = guarded(FedAvgRecipe, "plan.json", "run")(name="hello-pt", ...)
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from privplan.contrib.adapters.members import members_of, updates_of
from privplan.errors import InputError, PrivplanError
from privplan.guard import Guard, Layout, clip
from privplan.ledger import read_ledger
from privplan.plan import Plan
from privplan.record import LEDGER, PLAN

try:
    from nvflare.apis.dxo import DXO, DataKind
    from nvflare.apis.dxo_filter import DXOFilter
    from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
    from nvflare.app_common.workflows.model_controller import ModelController
except ImportError as error:
    raise ImportError("privplan.contrib.adapters.nvflare needs nvflare 2.9") from error

Arrays = dict[str, np.ndarray]

# Options of a recipe (NVFlare 2.9, FedAvgRecipe) that a guarded workflow does not read:
# where training begins and ends, how updates are averaged, and by which exact metric of
# the sites a model is selected.
_WITHOUT_EFFECT = (
    "aggregation_weights",
    "aggregator",
    "best_model_filename",
    "exclude_vars",
    "initial_ckpt",
    "key_metric",
    "model_persistor",
    "patience",
    "save_filename",
    "stop_cond",
)


class GuardedFedAvg(ModelController):  # type: ignore[misc]
    """A workflow whose cohorts, noise and weights are those of a plan.

    Its sites are drawn by the plan's law, while ``sample_clients`` of NVFlare draws a
    fixed number of those connected. A job that is run again with the same folder goes
    on from the last release.

    Args:
        plan: file of the plan.
        ledger: the run folder, which must outlive the job.
        members: names of the sites of each group, in any fixed order; by default
            site-1, site-2, and so on, in the plan's order of groups.
        model: file of the initial model, an ``.npz`` of named arrays.
        book: address of a budget book.
        evidence: ``internal`` or ``public``, see ``Guard``.
        timeout: seconds to wait for the sites of a round; 0 waits for ever.
        options: of ``ModelController``; by default a site that fails is one that did
            not report.
    """

    def __init__(
        self,
        plan: str,
        ledger: str,
        members: Mapping[str, Sequence[str]] | None = None,
        model: str = "",
        book: str = "",
        evidence: str = "internal",
        timeout: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(**{"persistor_id": "", "ignore_result_error": True, **options})
        self.plan = plan
        self.ledger = ledger
        self.members = members
        self.model = model
        self.book = book
        self.evidence = evidence
        self.timeout = timeout
        self.reports: list[bool] = []  # of this job's rounds: whether a site reported

    def run(self) -> None:
        """The workflow: rounds until the plan ends or a budget is exhausted."""
        try:
            with Guard(
                self.plan,
                self.ledger,
                self.book or None,
                evidence="public" if self.evidence == "public" else "internal",
                framework="NVFlare",
            ) as guard:
                sites = map("site-{}".format, count(1))
                self._train(guard, members_of(guard, self.members, sites))
        except PrivplanError as refused:
            self.panic(str(refused))

    def _train(self, guard: Guard, member: Mapping[str, tuple[str, int]]) -> None:
        model = self._initial_model()
        model = guard.model or model
        interrupted = guard.interrupted
        if interrupted is not None:
            model = moved(model, interrupted.mean)
            guard.record(interrupted.round, model)
        for round_ in guard.rounds():
            cohort = guard.draw(round_, self._available(member))
            for sentence in cohort.guarantee:
                self.warning(sentence)
            chosen = set(cohort.members)
            targets = [site for site, client in member.items() if client in chosen]
            reported = self._collect(guard, model, round_, targets, member)
            if self.abort_signal.triggered:
                # The round is not booked; the same job goes on with it.
                return
            # A round that failed would say that nobody was drawn who reports.
            if targets and not reported:
                self.warning(
                    f"round {round_}: none of {len(targets)} drawn sites reported: only "
                    "noise is released"
                )
            self.reports.append(reported)
            lost = sum(guard.total(name).excluded for name in cohort.clients)
            if lost:
                self.warning(
                    f"{lost} of {len(targets)} updates are not finite and count as zero"
                )
            nobody = None
            if not reported:
                nobody = {guard.plan.groups[0].name: np.zeros(Layout.of(model).size)}
            released = guard.release(round_, nobody)
            model = moved(model, released.mean)
            guard.record(round_, model)
            self.info(
                f"round {round_}: released and booked, {len(targets)} sites drawn"
            )
        refusal = None if guard.finished else guard.refusal()
        if refusal is not None:
            self.panic(refusal)
        elif self.reports and not any(self.reports):
            self.panic(
                f"no site reported an update in {len(self.reports)} rounds: only noise"
            )

    def _initial_model(self) -> Arrays:
        with np.load(self.model, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}

    def _available(self, member: Mapping[str, tuple[str, int]]) -> dict[str, list[int]]:
        """Positions of the connected sites, by group."""
        positions: dict[str, list[int]] = {}
        for site in self.engine.get_clients():
            if site.name in member:
                group, position = member[site.name]
                positions.setdefault(group, []).append(position)
        return positions

    def _collect(
        self,
        guard: Guard,
        model: Arrays,
        round_: int,
        targets: list[str],
        member: Mapping[str, tuple[str, int]],
    ) -> bool:
        """Add the updates of a round's sites.

        Returns:
            Whether a site reported.
        """
        if not targets:
            return False
        sent = FLModel(
            params=model,
            current_round=round_ - 1,
            total_rounds=guard.plan.spec.rounds,
        )
        results = self.send_model_and_wait(
            targets=targets, data=sent, min_responses=len(targets), timeout=self.timeout
        )
        layout = Layout.of(model)
        whole: dict[tuple[str, int], FLModel] = {}
        differences: dict[tuple[str, int], FLModel] = {}
        for result in results:
            site = str((result.meta or {}).get("client_name"))
            if site in targets and result.params is not None:
                is_whole = result.params_type == ParamsType.FULL
                replies = whole if is_whole else differences
                replies[member[site]] = result
        nowhere = np.zeros(layout.size)
        updates = updates_of(layout, layout.vector(model), whole, _arrays_in)
        updates |= updates_of(layout, nowhere, differences, _arrays_in)
        for place, update in updates.items():
            guard.add(round_, *place, update)
        return bool(updates)


def _arrays_in(result: FLModel) -> Arrays:
    """The arrays of a site's result."""
    return {name: np.asarray(value) for name, value in result.params.items()}


def guarded(recipe: type[Any], plan: str, ledger: str, **options: Any) -> type[Any]:
    """A recipe of federated averaging whose workflow executes a plan.

    Args:
        recipe: a ``FedAvgRecipe`` of NVFlare, whose ``model`` has a ``state_dict`` or
            is one.
        plan: file of the plan.
        ledger: the run folder; the initial model is written beside it.
        options: of ``GuardedFedAvg``.

    Raises:
        InputError: by the recipe, for an option that a guarded workflow does not read.
    """

    class Guarded(recipe):  # type: ignore[misc]
        def __init__(self, **settings: Any) -> None:
            for name in _WITHOUT_EFFECT:
                if settings.get(name):
                    rule = "must be left out; plan and guard decide what it would say"
                    raise InputError.one(name, rule, settings[name])
            # An empty name leaves out NVFlare's model selector, which writes the exact
            # metric of each site to the server's log.
            super().__init__(**{**settings, "key_metric": ""})

        def _create_controller(self, *_: Any, **__: Any) -> GuardedFedAvg:
            rounds = Plan.load(plan).spec.rounds
            if self.num_rounds != rounds:
                raise InputError.one(
                    "num_rounds", f"must be {rounds}, as in plan", self.num_rounds
                )
            state = getattr(self.model, "state_dict", lambda: self.model)()
            file = Path(f"{ledger}-initial.npz").resolve()
            save_model({name: np.asarray(value) for name, value in state.items()}, file)
            return GuardedFedAvg(
                str(Path(plan).resolve()),
                str(Path(ledger).resolve()),
                **{"model": str(file), **options},
            )

    return Guarded


class ClippingFilter(DXOFilter):  # type: ignore[misc]
    """A filter of a site's results that clips its update; the controller clips again.

    Args:
        clipping_norm: the group's clipping norm in the plan.
    """

    def __init__(self, clipping_norm: float) -> None:
        kinds = [DataKind.WEIGHT_DIFF, DataKind.WEIGHTS]
        super().__init__(supported_data_kinds=kinds, data_kinds_to_filter=kinds)
        self.clipping_norm = clipping_norm

    def process_dxo(self, dxo: DXO, shareable: Any, fl_ctx: Any) -> DXO:
        """The clipped update; whole models are clipped by the controller alone."""
        if dxo.data_kind != DataKind.WEIGHT_DIFF:
            text = (
                "params_type is FULL: the controller clips this site's update, the site "
                "does not"
            )
            self.log_warning(fl_ctx, text)
            return dxo
        arrays = {name: np.asarray(value) for name, value in dxo.data.items()}
        layout = Layout.of(arrays)
        update = layout.vector(arrays)
        # Otherwise the controller counts it as lost, and adds zero.
        if np.isfinite(update).all():
            dxo.data = layout.arrays(clip(update, self.clipping_norm), arrays)
        return dxo


def check_released(run: Path | str) -> None:
    """End the process with one line and exit code 5 where a run released no update.

    NVFlare's simulator ends with 0 whatever happened to its job. Where the evidence is
    public, a release counts as one with updates.
    """
    folder = Path(run)
    plan = Plan.load(folder / PLAN)
    is_released = False
    if (folder / LEDGER).exists():
        for line in read_ledger(folder, plan.digest).records:
            has_update = any(share.cohort != 0 for share in line.shares)
            is_released = is_released or (has_update and not line.failure)
    if not is_released:
        sys.stderr.write(
            f"run: must have a release with an update, found none in {folder}\n"
        )
        raise SystemExit(5)


def moved(model: Arrays, mean: np.ndarray) -> Arrays:
    """The model plus a mean update [d]."""
    layout = Layout.of(model)
    return layout.arrays(layout.vector(model) + mean, model)


def save_model(arrays: Mapping[str, np.ndarray], path: Path | str) -> None:
    """Write an initial model for ``GuardedFedAvg``."""
    np.savez(path, **dict(arrays))  # type: ignore[arg-type]
