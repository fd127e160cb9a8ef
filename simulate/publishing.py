"""The model that is published of a run: the one that the verifier trained."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from privplan.errors import InputError
from privplan.plan import Plan
from privplan.publishing import PublishedModel
from privplan.record import PLAN, RunRecord
from privplan.verification.verify import STATE
from simulate.algorithm import Algorithm
from simulate.cli.replay import given_parts
from simulate.models.network import Model
from simulate.postprocessing import ModelState
from simulate.replay.model import algorithm_of, model_of


def published_model(folder: Path, options: Mapping[str, Any]) -> PublishedModel | None:
    """The parameters of a finished run by name, as the verifier trained them.

    None where it did not train all rounds from the seed on: the releases that a run
    stored are whatever its trainer wrote, and so is a model that is computed from them.

    Args:
        folder: the run folder.
        options: data and own parts, as ``privplan verify`` takes them, and the state
            that executing all rounds ended in.

    Raises:
        InputError: for an unknown algorithm, an own model that is not given, or an
            algorithm whose global vector is no model.
    """
    plan = Plan.load(folder / PLAN)
    record = RunRecord.load(folder)
    # A name that nobody knows is refused, whether there is a model or not.
    algorithm = algorithm_of(plan, record)
    state = options.get(STATE, {}).get("final")
    if not isinstance(state, ModelState):
        return None
    is_module = record.configuration.get("own_model") is not None
    built: Model | None = None
    if is_module:
        own_parts, data_dir = given_parts(options)
        if own_parts.model is None:
            rule = "must be given again to publish a run of an own model, with --data and --model"
            raise InputError.one("model", rule, "none")
        built = own_parts.parts_of(record, plan, data_dir, folder).model
    vector = state.released(algorithm)
    model = built or model_of(record, plan, folder, len(vector), None)
    named = named_parameters(algorithm, model, vector)
    kind: Literal["all", "shared"] = "all"
    if algorithm.personalisation.per_client:
        named = shared_only(algorithm, model, named)
        kind = "shared"
    return PublishedModel(named, kind, algorithm.name, initial_of(plan, is_module))


def initial_of(plan: Plan, is_module: bool) -> Literal["seed", "plan", "module"]:
    """Where the model of a run began; ``is_module`` of an own one."""
    if plan.spec.model.initial is not None:
        return "plan"
    if is_module:
        return "module"
    return "seed"


def named_parameters(
    algorithm: Algorithm, model: Model, vector: Tensor
) -> dict[str, np.ndarray]:
    """The parameters in a global vector [d] by name, float32, on the CPU."""
    if algorithm.split.dimension(model) != model.parameters:
        rule = "must train one vector of the model's parameters to be published"
        raise InputError.one("algorithm", rule, algorithm.name)
    theta = vector.detach().cpu().numpy().astype(np.float32)
    named: dict[str, np.ndarray] = {}
    begin = 0
    for name, shape in model.shapes:
        size = int(np.prod(shape, dtype=np.int64))
        named[name] = theta[begin : begin + size].reshape(shape)
        begin += size
    return named


def shared_only(
    algorithm: Algorithm, model: Model, named: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The parameters all of whose coordinates leave the clients."""
    shared = algorithm.split.shared(model)
    if shared is None:
        return named
    leaves = np.zeros(model.parameters, dtype=bool)
    leaves[shared.numpy()] = True
    sent: dict[str, np.ndarray] = {}
    begin = 0
    for name, values in named.items():
        if leaves[begin : begin + values.size].all():
            sent[name] = values
        begin += values.size
    return sent
