"""Publishing a run: judge it, compute what is published, and write the bundle."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from privplan.accounting.accountant import (
    Interval,
    accountant,
    fast_accountants,
    outwards,
)
from privplan.accounting.certificate import CertificateRow, certify
from privplan.accounting.release import SHORT, Relation
from privplan.bundle import (
    DEPLOYMENT,
    DIGITS,
    Bundle,
    GroupPromise,
    PublishedCertificate,
    PublishedVerdict,
)
from privplan.distribution import own_version
from privplan.errors import BrokenRunError, Fault, InputError, UnverifiedRunError
from privplan.files import write_bytes
from privplan.plan import GroupPlan, Plan
from privplan.promise import GUARANTEE, GUARANTEES
from privplan.public_data import has_known_records
from privplan.record import refuse_inside_run, run_folder
from privplan.verification.run import Run
from privplan.verification.verdict import GroupVerdict, Verdict
from privplan.verification.verify import (
    SELECTION,
    STATE,
    approved_plan,
    judge,
    load_run,
)

NOT_APPROVED = (
    "the plan is as the run has it, names and numbers too: give the one that was approved "
    "before training (--plan), or read plan.json before others do"
)
NEEDS_PLAN = (
    "must be the one that was approved before training (--plan), where executing the run "
    "did not show that its data are public: names and numbers of the run's own plan may "
    "say anything of them"
)
NO_DEPLOYED_MODEL = (
    "a deployment's model is not in its folder: only plan, certificate and verdict"
)
NO_MODEL = (
    "only plan, certificate and verdict: the model is published when the verifier has "
    "trained all rounds again"
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublishedModel:
    """The model of a run as the verifier trained it, from the seed on."""

    parameters: Mapping[str, np.ndarray]  # float32, by name, in the order of the model
    kind: Literal["all", "shared"]
    algorithm: str  # its registered name
    initial: Literal["seed", "plan", "module"]


@dataclass(frozen=True)
class Published:
    """A bundle that was written, and what its publisher should know."""

    bundle: Bundle
    folder: Path
    notes: tuple[str, ...]  # why no round was executed again, or why it has no model


def publish(
    run: Any,
    output: Path | str,
    *,
    rounds: int | str = "all",
    plan: Any = None,
    options: Mapping[str, Any] | None = None,
    trusted: Iterable[object] = (),
    noise_key: Path | None = None,
) -> Published:
    """Write the bundle of a run that kept its plan into a new folder.

    The rounds that are executed again follow from plan and ledger, so that equal calls
    write equal bytes. Whoever writes a ledger knows them in advance: fewer than all
    rounds are no test of somebody who cheats.

    Args:
        run: a run folder, or what ``load_run`` or ``simulate.train`` returned.
        output: the new folder.
        rounds: how many rounds are executed again; 0 publishes a run that is kept as
            recorded.
        plan: the plan that was approved, needed for a run on data that are not public;
            a run of another one is broken.
        options: what the executor is given, such as data and model of a run on own
            ones.
        trusted: what the reader of the run trusts.
        noise_key: file with the key of cohorts and noise; the one beside the folder
            when None.

    Raises:
        BrokenRunError: when the verdict is broken.
        UnverifiedRunError: when it is unverified, or the run is a rehearsal on own
            data.
        InputError: when the model cannot be computed or is not finite, the folder is
            not new, or the approved plan is missing.
    """
    output = Path(output)
    folder = run_folder(run)
    if output.exists():
        raise InputError.one("output", "must be a new folder", str(output))
    refuse_inside_run(folder, output)
    bundle, notes = bundle_of(
        load_run(folder),
        rounds=rounds,
        plan=plan,
        options=options,
        trusted=trusted,
        noise_key=noise_key,
    )
    _write(output, bundle.contents())
    _log.info("%s: bundle of plan %s", output, bundle.plan.digest)
    return Published(bundle, output, notes)


def bundle_of(
    loaded: Run,
    *,
    rounds: int | str = "all",
    plan: Any = None,
    options: Mapping[str, Any] | None = None,
    trusted: Iterable[object] = (),
    noise_key: Path | None = None,
) -> tuple[Bundle, tuple[str, ...]]:
    """The bundle of a run, and what its publisher should know; as ``publish``."""
    approved = () if plan is None else (approved_plan(plan, loaded.folder),)
    # Refused before anything is trained: no execution will show own data to be public.
    if plan is None and loaded.record.is_on_own_data:
        raise InputError.one("plan", NEEDS_PLAN, "none")
    chosen = {**(options or {}), SELECTION: _selection_seed(loaded), STATE: {}}
    believed = (*approved, *trusted)
    # A run that its own files break is refused before anything is trained again.
    as_recorded = judge(loaded, 0, trusted=believed, noise_key=noise_key)
    if as_recorded.failed:
        _refuse(as_recorded)
    verdict = judge(
        loaded, rounds, options=chosen, trusted=believed, noise_key=noise_key
    )
    _refuse(verdict)
    shown_public = verdict.executed > 0 and has_known_records(verdict.dataset)
    if plan is None and not shown_public:
        raise InputError.one("plan", NEEDS_PLAN, "none")
    notes: list[str] = []
    if verdict.not_executed and str(rounds) != "0":
        notes.append(verdict.not_executed)
    # Judging broke the run of another plan than the approved one.
    is_approved = plan is not None
    if not is_approved:
        notes.append(NOT_APPROVED)
    model = None
    if loaded.record.seed is None:
        notes.append(NO_DEPLOYED_MODEL)
    else:
        model = _computed_model(loaded, chosen)
        if model is None:
            notes.append(NO_MODEL)
        else:
            _refuse_diverged(model)
    return _bundle(loaded, verdict, model, is_approved), tuple(notes)


def _selection_seed(run: Run) -> int:
    """The seed that selects rounds: of the plan and the ledger's last line."""
    text = f"privplan publish v1\n{run.plan.digest}\n{run.ledger.chain}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _refuse(verdict: Verdict) -> None:
    """Raise for a run that did not keep its plan, or of which that is not shown."""
    if verdict.is_unseen_simulation:
        rule = (
            "must be executed again on published records to be published, as seeded noise "
            "protects nobody and only the run says that its data are public; "
            f"{verdict.why_unseen}"
        )
        raise UnverifiedRunError(f"run: {rule}")
    if verdict.outcome == "kept":
        return
    if verdict.failed:
        check = verdict.failed[0]
        raise BrokenRunError(
            f"run: must be kept to be published; broken: {check.name}: {check.reason}"
        )
    if verdict.outcome == "rehearsal":
        rule = "must have secure noise to be published; a rehearsal protected nobody"
        raise UnverifiedRunError(f"run: {rule}")
    check = verdict.not_shown[0]
    raise UnverifiedRunError(
        f"run: must be verified to be published; not shown: {check.name}: {check.reason}"
    )


def _computed_model(run: Run, options: Mapping[str, Any]) -> PublishedModel | None:
    """The model of a simulation; None where not all rounds were executed again."""
    try:
        chapter = import_module("simulate.publishing")
    except ImportError as error:
        rule = "needs the simulator: pip install 'privplan[simulate]'"
        raise InputError.one("publish", rule, str(error)) from None
    return cast(PublishedModel | None, chapter.published_model(run.folder, options))


def _refuse_diverged(model: PublishedModel) -> None:
    """Refuse a model that no reader of a bundle takes."""
    for name, values in model.parameters.items():
        if not np.isfinite(values).all():
            rule = "must be finite to be published; training diverged"
            raise InputError.one("model", rule, f"inf or nan in {name}")


def _bundle(
    run: Run, verdict: Verdict, model: PublishedModel | None, is_approved: bool
) -> Bundle:
    """The bundle of a run that was judged."""
    plan = run.plan
    record = run.record
    promises = [
        _promise(plan, group, spent)
        for group, spent in zip(plan.groups, verdict.groups, strict=True)
    ]
    # With a model the verifier trained every round, whatever agreed with the run's own.
    # How many of fewer rounds agree depends on rounding, and so on records.
    executed = 0 if model is None else plan.spec.rounds
    published = PublishedVerdict(
        plan=plan.digest,
        algorithm=_method(run, model),
        unit=plan.unit,
        relation=plan.spec.relation,
        level="recorded" if model is None else "executed",
        noise=record.noise,
        rounds=plan.spec.rounds,
        executed=executed,
        model="none" if model is None else model.kind,
        initial=None if model is None else model.initial,
        approved=is_approved,
        believed=_believed(run),
        released=_released_rounds(run),
        privplan=own_version(),
        groups=tuple(promises),
    )
    certificate = PublishedCertificate(plan=plan.digest, rows=certificate_rows(plan))
    return Bundle(
        plan, certificate, published, None if model is None else model.parameters
    )


def _method(run: Run, model: PublishedModel | None) -> str:
    """What trained: a registered name, as a free one could say anything."""
    if model is not None:
        return model.algorithm
    return (
        DEPLOYMENT
        if run.record.seed is None
        else "a method whose name is not published"
    )


def _believed(run: Run) -> tuple[Literal["module", "loss"], ...]:
    """Which code of the trainer decides what clients send, and is believed."""
    code: list[Literal["module", "loss"]] = []
    if "own_model" in run.record.configuration:
        code.append("module")
    if "own_loss" in run.record.configuration:
        code.append("loss")
    return tuple(code)


def _released_rounds(run: Run) -> int | None:
    """How many rounds released something; None where all planned ones did."""
    rounds = {
        release.round for release in run.ledger.records if not release.noise.silent
    }
    is_whole = run.record.status == "complete" and all(
        not release.noise.silent for release in run.ledger.records
    )
    if is_whole:
        return None
    return len(rounds)


def read_bundle(folder: Path | str, *, plan: Plan | Path | str | None = None) -> Bundle:
    """A bundle whose bounds on the plan are those that the plan has, computed anew.

    So is everything else that follows from the plan. What the run spent, and how it was
    checked, stays the publisher's word.

    Args:
        folder: the bundle.
        plan: the plan that its reader approved, if there is one.

    Raises:
        InputError: where a file is not one that ``publish`` writes, or a value differs.
        BrokenRunError: for a bundle of another plan than the approved one.
    """
    folder = Path(folder)
    bundle = Bundle.load(folder)
    plan_of_bundle = bundle.plan
    if bundle.certificate.rows != certificate_rows(plan_of_bundle):
        rule = "must have the bounds of plan.json"
        raise InputError.one("bundle.certificate.rows", rule, "others")
    faults = [*_contradictions(plan_of_bundle, bundle.verdict), *_other_sizes(bundle)]
    if faults:
        raise InputError(faults)
    if plan is not None:
        approved = approved_plan(plan, folder)
        if approved.digest != plan_of_bundle.digest:
            difference = f"approved was {approved.digest[:SHORT]}"
            raise BrokenRunError(
                f"the bundle has plan {plan_of_bundle.digest[:SHORT]}, {difference}"
            )
    return bundle


def _contradictions(plan: Plan, verdict: PublishedVerdict) -> Iterator[Fault]:
    """What a bundle's verdict says and its plan does not."""
    names = [promise.group for promise in verdict.groups]
    planned_names = [group.name for group in plan.groups]
    if names != planned_names:
        rule = f"must be {', '.join(planned_names)}, as in plan.json"
        yield Fault("bundle.verdict.groups", rule, ", ".join(names))
        return
    planned = {
        "unit": plan.unit,
        "relation": plan.spec.relation,
        "rounds": plan.spec.rounds,
    }
    for field, value in planned.items():
        written = getattr(verdict, field)
        if written != value:
            rule = f"must be {value}, as in plan.json"
            yield Fault(f"bundle.verdict.{field}", rule, written)

    # Parameters with which a model began are in the plan, or nowhere.
    begins_by_plan = plan.spec.model.initial is not None
    if verdict.initial is not None and begins_by_plan != (verdict.initial == "plan"):
        rule = "must be plan where plan.json names initial parameters, and only there"
        yield Fault("bundle.verdict.initial", rule, verdict.initial)

    for group, promise in zip(plan.groups, verdict.groups, strict=True):
        field = f"bundle.verdict.groups.{group.name}"
        promised = _promised(plan, group)
        for name, value in promised.items():
            written = getattr(promise, name)
            if written != value:
                rule = f"must be {value}, as in plan.json"
                yield Fault(f"{field}.{name}", rule, written)
        # A run that kept its plan spent what was planned, once all is released. Where
        # clients may drop out, the noise of those who did not may be more.
        lowest = promised["certified_lower"]
        may_be_less = verdict.released is not None
        may_be_less |= plan.spec.planning.dropout_tolerance > 0
        if promise.realised_upper < lowest and not may_be_less:
            rule = f"must be {lowest:g} or more by plan.json"
            yield Fault(f"{field}.realised_upper", rule, promise.realised_upper)


def _other_sizes(bundle: Bundle) -> Iterator[Fault]:
    """A model that has more numbers than the plan's, or fewer where it is whole."""
    if bundle.parameters is None:
        return
    planned = bundle.plan.spec.model.parameters
    count = sum(values.size for values in bundle.parameters.values())
    is_whole = bundle.verdict.model == "all"
    if count > planned or (is_whole and count < planned):
        rule = f"must have {planned} parameters, as in plan.json"
        if not is_whole:
            rule = f"must have at most {planned} parameters, as in plan.json"
        yield Fault("bundle.model", rule, count)


def certificate_rows(plan: Plan) -> tuple[CertificateRow, ...]:
    """What each accountant says of the groups' planned histories, computed anew."""
    rows: list[CertificateRow] = []
    for group in plan.groups:
        certificate = certify(
            plan.history(group),
            group=group.name,
            delta=group.delta,
            relation=plan.spec.relation,
            accountants=fast_accountants(),
            unit=plan.unit,
        )
        rows += [_outwards(row) for row in certificate]
    return tuple(rows)


def _outwards(row: CertificateRow) -> CertificateRow:
    """The row with bounds rounded outwards: last digits follow the processor."""
    lower = outwards(row.epsilon_lower, False, DIGITS)
    upper = outwards(row.epsilon_upper, True, DIGITS)
    return row.model_copy(update={"epsilon_lower": lower, "epsilon_upper": upper})


def _promise(plan: Plan, group: GroupPlan, verdict: GroupVerdict) -> GroupPromise:
    """What the verdict says of a group, with bounds rounded outwards."""
    realised = verdict.realised_upper
    if realised is None:
        raise UnverifiedRunError(
            f"run: must have a finite epsilon, as {group.name} has not"
        )
    return GroupPromise(
        **_promised(plan, group),
        realised_lower=outwards(verdict.realised_lower or 0.0, False, DIGITS),
        realised_upper=outwards(realised, True, DIGITS),
    )


def _promised(plan: Plan, group: GroupPlan) -> dict[str, Any]:
    """What follows from the plan in the promise to a group, by field."""
    certified = _certified(plan, group)
    return {
        "group": group.name,
        "clients": group.clients,
        "budget": group.epsilon,
        "delta": group.delta,
        "sampling": plan.law_of(group),
        "accountant": plan.guarantee,
        "certified_lower": outwards(certified.lower, False, DIGITS),
        "certified_upper": outwards(certified.upper, True, DIGITS),
    }


def _certified(plan: Plan, group: GroupPlan) -> Interval:
    """Bounds on the epsilon that the plan guarantees to a group, computed anew."""
    history = plan.history(group)
    if plan.guarantee == GUARANTEE:
        relation = Relation(plan.spec.relation)
        return accountant(GUARANTEE).epsilon(history, group.delta, relation)
    # The budget is of more than one run, such as the best of several.
    bound = GUARANTEES.get(plan.guarantee)
    return Interval(0.0, bound(plan, history, group.delta))


def _write(output: Path, files: Mapping[str, bytes]) -> None:
    """Write the files into a folder beside the output, which is then renamed."""
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(
            tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}.")
        )
    except OSError as error:
        rule = f"must be writable ({error.strerror})"
        raise InputError.one("output", rule, str(output)) from None
    try:
        for name, content in files.items():
            write_bytes(unfinished / name, content)
        unfinished.chmod(0o755)
        os.rename(unfinished, output)
    except OSError as error:
        rule = f"must be a new folder that can be written ({error.strerror})"
        raise InputError.one("output", rule, str(output)) from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
