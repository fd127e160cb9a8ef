"""Methods with noisy sums of clients, and FedAvg: their references and mutations."""

from dataclasses import replace
from itertools import chain

import numpy as np
import torch
from numpy.testing import assert_allclose
from torch import nn
from torch.testing import assert_close

from privplan.plan import Segment
from privplan.streams import Purpose, private_seed, stream
from simulate.aggregators import by_epsilon, literal, mean, normalised
from simulate.components import LocalRule
from simulate.engine.round import RoundContext, client_batch, participants
from simulate.local.sgd import blur, plain_sgd, private_sgd, sam
from simulate.personalisations import fine_tuned, own_model, shared
from simulate.projections import projected
from simulate.server import add, laplacian
from simulate.transforms import clip, own_clip, random_mask, sparsify
from tests.simulate import case, small, tiny

# Of each group's clipped updates in the tiny world.
SUMS = np.array([6.0, 8.0])
# Times the noise multipliers 2 and 0.5 of the tiny world: 5 both times.
BOUNDS = (2.5, 10.0)
RATIOS = (0.25, 0.5, 0.75)
# One round with the first and two with the second have the mean above.
HALF = (0.15, 0.3, 0.45)
FULL = (0.3, 0.6, 0.9)


def changed(plan, changes):
    """The plan with other fields of its groups."""
    pairs = zip(plan.groups, changes, strict=True)
    groups = tuple(group.model_copy(update=change) for group, change in pairs)
    return plan.model_copy(update={"groups": groups})


def by_ratio(ratios):
    """Fields of groups that take part by these ratios."""
    return [
        {"sampling_ratio": ratio, "expected_cohort": ratio * small.CLIENTS}
        for ratio in ratios
    ]


def by_round(*stretches):
    """Groups whose ratios move: rounds and the ratios of the groups in them."""
    fields = by_ratio(RATIOS)
    for index, fields_of_group in enumerate(fields):
        fields_of_group["segments"] = tuple(
            Segment(rounds=rounds, sampling_ratio=ratios[index], noise_multiplier=1e-15)
            for rounds, ratios in stretches
        )
    return changed(small.plan(), fields)


def check_bounds(algorithm):
    """Clipped to 2.5: (1.5, 2) twice; to 10: (3, 4) and (6, 8); deviation 5."""
    setting = tiny.setting(replace(algorithm, local=tiny.LOCAL))
    step, [record], _ = tiny.one_round(setting)
    clipped = np.array([2 * 1.5 + 3 + 6, 2 * 2.0 + 4 + 8])
    total = clipped + tiny.noise(algorithm.plan, 0, 5.0)
    assert_allclose(step, total / 4, rtol=1e-5)
    shares = record.shares
    assert [share.clip_bound for share in shares] == list(BOUNDS)
    multipliers = [record.release_for(share).noise_multiplier for share in shares]
    assert_allclose(multipliers, tiny.SIGMAS, rtol=1e-12)


def check_ratios(*ratios):
    """Compare with plain SGD of cohorts drawn here, by the groups' ratios by round."""

    def check(algorithm):
        world = small.setting(algorithm)
        theta = world.start
        for round_, ratios_of_groups in enumerate(ratios, 1):
            cohorts = []
            for group, ratio in enumerate(ratios_of_groups):
                positions = _drawn(world, round_, group, ratio)
                cohorts.append(world.partition.members[group][positions])
            groups = small.loop(world, round_, theta, small.plain_client, cohorts)
            updates = list(chain.from_iterable(groups))
            theta = theta + torch.stack(updates).sum(0) / small.COHORT
        same_movement(algorithm, theta - world.start)

    return check


def same_movement(algorithm, expected):
    """Compare how far the model moves in the world of digits."""
    movement = small.moved(algorithm)
    assert_close(movement, expected, rtol=1e-4, atol=1e-6)


def _drawn(world, round_, group, ratio):
    """A Poisson sample from its documented stream: a binomial size, then uniformly."""
    plan = world.algorithm.plan
    seed = private_seed(world.seed, plan.spec_digest, plan.groups[group].name)
    generator = stream(seed, Purpose.SAMPLING, round_, group)
    size = generator.binomial(small.CLIENTS, ratio)
    return generator.choice(small.CLIENTS, size=size, replace=False, shuffle=False)


INDIVIDUAL_CASES = (
    case.Case(
        "IDP-FedAvg-Scale",
        changed(
            tiny.plan(release="joint"), [{"clipping_norm": bound} for bound in BOUNDS]
        ),
        check_bounds,
        {
            "one bound for all": case.having(transforms=(clip(tiny.NORM),)),
            "the strictest bound for all": case.having(transforms=(clip(2.5),)),
            "bounds that the plan does not have": case.having(
                plan=tiny.plan(release="joint"), transforms=(own_clip(tiny.NORM),)
            ),
        },
    ),
)


JOINT = tiny.plan(release="joint", sigmas=(2.0, 2.0))
RHO = 0.3
PRICE = 5.0
RADIUS = 0.05


def like_a_loop(client):
    """Compare with the mean over clients who train for themselves."""

    def check(algorithm):
        same_movement(algorithm, small.averaged(small.setting(algorithm), client))

    return check


def sam_client(network, batches, rate):
    """SAM on all parameters."""
    small.sam(network, batches, rate, RHO)


def blur_client(network, batches, rate):
    """SGD on the penalised loss, differentiated by autograd."""
    start = small.flat(network)
    optimiser = small.sgd(network, rate)
    for images, labels in batches:
        optimiser.zero_grad()
        change = nn.utils.parameters_to_vector(network.parameters()) - start
        excess = torch.relu(change.square().sum() - RADIUS**2)
        (small.loss(network, images, labels) + PRICE / 2 * excess).backward()
        optimiser.step()


def in_the_tiny_world(algorithm):
    """The step of the first round with the updates (3, 4) times 1, 2, 1 and 4."""
    step, _, _ = tiny.one_round(tiny.setting(replace(algorithm, local=tiny.LOCAL)))
    return step


# Four times (3, 4), the sum of all clipped updates.
CLIPPED = np.array([12.0, 16.0])


def check_smoothing(algorithm):
    """With two parameters the system is [[1 + 2 s, -2 s], [-2 s, 1 + 2 s]]."""
    mean = (CLIPPED + tiny.noise(algorithm.plan, 0, 10.0)) / 4
    expected = np.linalg.solve([[2.0, -1.0], [-1.0, 2.0]], mean)
    assert_allclose(in_the_tiny_world(algorithm), expected, rtol=1e-5)


def check_mask(algorithm):
    """One of two coordinates: cut out, clipped, summed, noised; nothing else moves."""
    setting = tiny.setting(replace(algorithm, local=tiny.LOCAL))
    step, [record], _ = tiny.one_round(setting)
    assert record.dimension == 1
    [coordinate] = np.flatnonzero(step)
    update = (3.0, 4.0)[coordinate]
    total = sum(min(update * pixel, 5.0) for pixel in (1, 2, 1, 4))
    expected = (total + tiny.noise(algorithm.plan, 0, 10.0, 1)[0]) / 4
    assert_allclose(step[coordinate], expected, rtol=1e-5)


JOINT_CASES = (
    case.Case("DP-FedSAM", small.plan(), like_a_loop(sam_client), {
        "no ascent": case.having(local=sam(0.0)),
        "plain SGD": case.having(local=plain_sgd()),
        "descent in place of ascent": case.having(local=sam(-RHO)),
    }, {"rho": RHO}),
    case.Case("DP-FedAvg-BLUR", small.plan(), like_a_loop(blur_client), {
        "no penalty": case.having(local=blur(0.0, RADIUS)),
        "nothing costs nothing": case.having(local=blur(PRICE, 0.0)),
        "everything costs nothing": case.having(local=blur(PRICE, 1e6)),
    }, {"price": PRICE, "radius": RADIUS / 1e3}),
)  # fmt: skip


def noisy_sums(algorithm):
    """The sums of both groups of the tiny world with the noise of the plan."""
    strict = SUMS + tiny.noise(algorithm.plan, 0, 10.0)
    loose = SUMS + tiny.noise(algorithm.plan, 1, 2.5)
    return strict, loose


def check_weights(algorithm):
    """Two clients of epsilon 1, two of epsilon 2: weights 1/6 and 2/6 on updates."""
    step = in_the_tiny_world(algorithm)
    strict, loose = noisy_sums(algorithm)
    assert_allclose(step, (strict + 2 * loose) / 6, rtol=1e-5)


def check_one_direction(algorithm):
    """In two dimensions: the strict sum's part along the loose one; weights r^2."""
    step = in_the_tiny_world(algorithm)
    strict, loose = noisy_sums(algorithm)
    along = strict @ loose / (loose @ loose) * loose
    assert_allclose(step, 0.25 / 4 * along + 0.75 / 4 * loose, rtol=1e-5)


def check_subspace(directions):
    """Three groups over three rounds: least squares on the last public sums."""

    def check(algorithm):
        world = small.setting(algorithm)
        theta = world.start
        public: list[np.ndarray] = []
        for round_ in range(1, small.ROUNDS + 1):
            groups = small.loop(world, round_, theta, small.plain_client)
            sums = [torch.stack(group).sum(0).double().numpy() for group in groups]
            public = [sums[2], *public][:directions]
            basis = np.stack(public, axis=1)
            sums[0] = basis @ np.linalg.lstsq(basis, sums[0])[0]
            total = np.array(small.WEIGHTS) @ np.stack(sums)
            theta = theta + torch.from_numpy(total / small.COHORT).float()
        same_movement(algorithm, theta - world.start)

    return check


GROUPS_CASES = (
    case.Case("PFA", tiny.plan(), check_one_direction, {
        "no projection": case.having(aggregator=literal()),
        "other weights": case.having(aggregator=projected(by_epsilon(), 1)),
    }),
    case.Case("PFA", small.plan("per_group"), check_subspace(2), {
        "no projection": case.having(aggregator=literal()),
        "one direction": case.having(aggregator=projected(literal(), 1)),
        "everything remembered": case.having(aggregator=projected(literal(), 9)),
    }, {"directions": 2}),
)  # fmt: skip


SCALES = (0.5, 1.0)


def clipped_at(norm):
    """The algorithm that clips to another norm."""

    def changed_algorithm(algorithm):
        transforms = tuple(
            clip(norm) if transform.name == "clip" else transform
            for transform in algorithm.transforms
        )
        return replace(algorithm, transforms=transforms)

    return changed_algorithm


def check_mean(algorithm):
    """One noisy sum of clipped updates over the expected cohort of four."""
    expected = (CLIPPED + tiny.noise(algorithm.plan, 0, 10.0)) / 4
    assert_allclose(in_the_tiny_world(algorithm), expected, rtol=1e-5)


def largest_only(vector):
    """A vector with all but its largest coordinate in absolute value set to zero."""
    sizes = np.abs(vector)
    return np.where(sizes == sizes.max(), vector, 0)


def check_groups(*, fraction):
    """A noisy sum per group, its largest coordinates kept, times w_m / (q n)."""

    def check(algorithm):
        strict, loose = noisy_sums(algorithm)
        if fraction < 1:
            strict = largest_only(strict)
            loose = largest_only(loose)
        expected = tiny.WEIGHTS[0] / 4 * strict + tiny.WEIGHTS[1] / 4 * loose
        assert_allclose(in_the_tiny_world(algorithm), expected, rtol=1e-5)

    return check


def check_scaled(algorithm):
    """sum_m s_m sum_i clip(Delta_i), with noise max s_m sigma_m C, over sum s_m r_m."""
    total = SCALES[0] * SUMS + SCALES[1] * SUMS + tiny.noise(algorithm.plan, 0, 2.5)
    expected = total / (2 * SCALES[0] + 2 * SCALES[1])
    assert_allclose(in_the_tiny_world(algorithm), expected, rtol=1e-5)


def check_tuned(client):
    """The shared training is a loop's; a client's last model is tuned by plain SGD."""

    def check(algorithm):
        like_a_loop(client)(algorithm)
        assert algorithm.personalisation.per_client
        world = small.setting(algorithm)
        end = small.played(algorithm)
        context = RoundContext(small.ROUNDS, end.theta, end.server, None, end.personal)
        group = algorithm.plan.groups[0]
        members = np.asarray(world.partition.members[0])
        later = small.ROUNDS + 1
        batch = client_batch(world, context, group, members, round_=later)
        models = algorithm.personalisation.deploy(end.theta, batch)
        models = models.expand(len(members), -1)
        for model, number in zip(models, members, strict=True):
            network = small.network_at(world, end.theta)
            batches = small.mini_batches(world, later, int(number))
            small.plain_client(network, batches, world.learning_rate(small.ROUNDS))
            assert_close(model, small.flat(network), rtol=1e-4, atol=1e-5)

    return check


def check_alone(algorithm):
    """Each participant goes on where it stopped; nobody else and nothing else moves."""
    world = small.setting(algorithm)
    models: dict[int, torch.Tensor] = {}
    for round_ in range(1, small.ROUNDS + 1):
        for number in np.concatenate(participants(world, round_)).tolist():
            network = small.network_at(world, models.get(number, world.start))
            real = small.mini_batches(world, round_, number)
            small.plain_client(network, real, world.learning_rate(round_))
            models[number] = small.flat(network)
    end = small.played(algorithm)
    assert_close(end.theta, world.start, rtol=0, atol=0)
    assert_close(dict(end.personal), models, rtol=1e-4, atol=1e-6)


def tuned_twice(thetas, batch):
    """Fine-tuning, and once more from there."""
    once = fine_tuned().deploy(thetas, batch)
    return fine_tuned().deploy(once, batch)


FINE_TUNING: dict[str, case.Mutation] = {
    "no fine-tuning": case.having(personalisation=shared()),
    "fine-tuning of nothing": case.having(personalisation=own_model()),
    "twice the fine-tuning": case.having(
        personalisation=replace(fine_tuned(), deploy=tuned_twice)
    ),
}
NOISY: dict[str, case.Mutation] = {
    "half of the noise": case.having(
        plan=tiny.plan(release="joint", sigmas=(1.0, 1.0))
    ),
    "clipped at twice the norm": clipped_at(10.0),
    "the mean of half the cohort": case.double_weights,
    "a step backwards": case.backwards,
}
GROUPS: dict[str, case.Mutation] = {
    "half of the noise": case.having(plan=tiny.plan(sigmas=(1.0, 0.25))),
    "clipped at twice the norm": clipped_at(10.0),
    "weights that do not count": case.having(aggregator=mean()),
    "weights that add up to 1": case.having(aggregator=normalised()),
}


def forgetting(algorithm):
    """Clients start every round with half of what they had."""

    def train(batch):
        half = None if batch.personal is None else batch.personal / 2
        return private_sgd().train(replace(batch, personal=half))

    return replace(algorithm, local=LocalRule("forgets", train))


def scaled_before_clipping(algorithm):
    return replace(algorithm, transforms=algorithm.transforms[::-1])


def without_scale(algorithm):
    return replace(algorithm, transforms=algorithm.transforms[:1])


CASES = (
    *INDIVIDUAL_CASES,
    *JOINT_CASES,
    *GROUPS_CASES,
    case.Case("FedAvg", small.plan(), like_a_loop(small.plain_client), {
        "half of the learning rate": case.slower,
        "no momentum": case.without_momentum,
        "the mean of half the cohort": case.double_weights,
        "a step backwards": case.backwards,
    }),
    case.Case("DP-FedAvg", JOINT, check_mean, NOISY),
    case.Case("DP-FedAvg-FT", small.plan(), check_tuned(small.plain_client), FINE_TUNING),
    case.Case(
        "DP-FedSAM-FT",
        small.plan(),
        check_tuned(sam_client),
        {**FINE_TUNING, "no ascent": case.having(local=sam(0.0))},
        {"rho": RHO},
    ),
    case.Case("DP-FedAvg-LS", JOINT, check_smoothing, {
        "twice the smoothing": case.having(server=laplacian(1.0)),
        "no smoothing": case.having(server=add()),
        **NOISY,
    }, {"smoothing": 0.5}),
    case.Case("Fed-SMP", JOINT, check_mask, {
        "the largest coordinates": case.having(transforms=(sparsify(0.5), clip(5.0))),
        "no mask": case.having(transforms=(random_mask(1.0), clip(5.0))),
        "the mean of half the cohort": case.double_weights,
    }, {"kept": 0.5}),
    case.Case("GDPFed", tiny.plan(), check_groups(fraction=1.0), GROUPS),
    case.Case("GDPFed-op", tiny.plan(), check_groups(fraction=1.0), GROUPS),
    case.Case("planned", tiny.plan(
        release="joint", scales=SCALES, sigmas=(1.0, 0.5)), check_scaled, {
        "scaled before clipping": scaled_before_clipping,
        "no scale": without_scale,
        "clipped at twice the norm": clipped_at(10.0),
        "half of the noise": case.having(
            plan=tiny.plan(release="joint", scales=SCALES, sigmas=(0.5, 0.25))
        ),
        "the looser group's scale for all": case.having(
            plan=tiny.plan(release="joint", scales=(1.0, 1.0), sigmas=(0.5, 0.5))
        ),
    }),
    case.Case("WeiAvg", tiny.plan(), check_weights, {
        "half of the noise": case.having(plan=tiny.plan(sigmas=(1.0, 0.25))),
        "everybody alike": case.having(aggregator=mean()),
        "the plan's weights": case.having(aggregator=normalised()),
        "clipped at twice the norm": clipped_at(10.0),
        "weights of twice the sum": case.double_weights,
    }),
    case.Case(
        "IDP-FedAvg-Sample",
        changed(small.plan(), by_ratio(RATIOS)),
        check_ratios(RATIOS, RATIOS, RATIOS),
        {
            "one ratio for all": case.having(plan=small.plan()),
            "weights by epsilon": case.having(aggregator=by_epsilon()),
            "the mean of half the cohort": case.double_weights,
        },
    ),
    case.Case("Time-adaptive HDPFL", by_round((1, HALF), (2, FULL)),
              check_ratios(HALF, FULL, FULL), {
        "saving twice as long": case.having(plan=by_round((2, HALF), (1, FULL))),
        "saving nothing": case.having(plan=by_round((1, FULL), (2, FULL))),
        "the mean of half the cohort": case.double_weights,
    }),
    case.Case("Local-only", small.plan(), check_alone, {
        "half forgotten": forgetting,
        "half of the learning rate": case.slower,
        "no momentum": case.without_momentum,
    }),
)  # fmt: skip
