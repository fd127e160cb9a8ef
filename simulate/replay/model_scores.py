"""Scores of the computed models, beside those that the record of a run claims."""

from __future__ import annotations

from privplan.record import RunRecord
from simulate.aggregators import WEIGHT
from simulate.algorithm import Algorithm
from simulate.postprocessing import ModelState
from simulate.replay.compare import Comparisons
from simulate.replay.scores import Score, Scores, scores_of
from simulate.replay.world import World
from simulate.tasks import evaluations

# Relative error of a sum over rounds of weights that float32 updates give.
WEIGHTS = 1e-5


class ModelScores:
    """Compares the scores of the models that pass with those that the record claims.

    Args:
        comparisons: takes what agrees and differs.
        record: of the run.
        world: what the run starts from.
        algorithm: of the run.
    """

    def __init__(
        self,
        comparisons: Comparisons,
        record: RunRecord,
        world: World,
        algorithm: Algorithm,
    ) -> None:
        self._comparisons = comparisons
        self._record = record
        self._world = world
        self._algorithm = algorithm
        self._claimed_points = {point.round: point for point in record.metrics}
        run_parts = world.parts
        metric = run_parts.metric
        self._has_own_metric = metric is not None and metric.is_own
        self._has_own_loss = "own_loss" in record.configuration
        # Test records of each round after which the model is evaluated.
        self._due = evaluations(
            world.plan, run_parts.partition, len(run_parts.data.test_y), world.seed
        )
        claimed_rounds = sorted(self._claimed_points)
        comparisons.equal(0, "evaluated rounds", claimed_rounds, [*self._due])

    def see(self, state: ModelState) -> None:
        """Compare the scores of a model, if its round is evaluated.

        Models that each client keeps are not stored, so no score of theirs is compared.
        """
        is_last = state.round == self._world.plan.spec.rounds
        if is_last:
            self._compare_weights(state)
        if self._comparisons.claimed or state.round not in self._due:
            return

        theta = state.released(self._algorithm)
        rows = self._due[state.round]
        scores = scores_of(self._world.parts, self._world.plan, theta, rows)
        if not scores.shown:
            self._comparisons.lacks(
                f"scores that rounding does not decide: {scores.undecided}"
            )

        point = self._claimed_points.get(state.round)
        if point is not None:
            for name, claimed, computed, is_own in (
                ("score", point.accuracy, scores.score, self._has_own_metric),
                ("loss", point.loss, scores.loss, self._has_own_loss),
            ):
                self._comparisons.scores(
                    state.round,
                    "metrics",
                    {name: claimed},
                    {name: computed},
                    by_own_code=is_own,
                )
        if is_last:
            self._compare_final(scores)

    def _compare_final(self, scores: Scores) -> None:
        """Compare the scores of the final model."""
        record = self._record
        recorded = {"score": record.accuracy}
        # Version 0.2 scored test records of unknown groups as a group without a name.
        recorded_by_group = {
            name: score for name, score in record.accuracy_by_group.items() if name
        }
        replayed = {"score": scores.score}
        for name, claimed, computed in (
            ("accuracy", recorded, replayed),
            ("accuracy_by_class", record.accuracy_by_class, scores.by_class),
            ("accuracy_by_group", recorded_by_group, scores.by_group),
        ):
            self._comparisons.scores(
                0, name, claimed, computed, by_own_code=self._has_own_metric
            )

    def _compare_weights(self, state: ModelState) -> None:
        """Compare the groups' mean weights, where the server gets them from updates."""
        computed: dict[str, Score] = {}
        for group in self._world.plan.groups:
            if WEIGHT + group.name in state.server:
                mean = float(state.server[WEIGHT + group.name]) / state.round
                computed[group.name] = (mean, WEIGHTS * mean)
        recorded = dict(self._record.weights)
        if computed or recorded:
            self._comparisons.scores(0, "weights", recorded, computed)
