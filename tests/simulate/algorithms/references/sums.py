"""Methods with noisy sums of clients, and FedAvg: their references and mutations."""

from dataclasses import replace

import numpy as np
import torch
from torch import nn

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

SUMS = np.array([6.0, 8.0])  # of each group's clipped updates in the tiny world
BOUNDS = (
    2.5,
    10.0,
)  # times the noise multipliers 2 and 0.5 of the tiny world: 5 both times
RATIOS = (0.25, 0.5, 0.75)
HALF, FULL = (
    (0.15, 0.3, 0.45),
    (0.3, 0.6, 0.9),
)  # one round and two of them have the mean above


def changed(plan, changes):
    """The plan with other fields of its groups."""
    pairs = zip(plan.groups, changes, strict=True)
    groups = tuple(group.model_copy(update=change) for group, change in pairs)
    return plan.model_copy(update={"groups": groups})


def by_ratio(ratios):
    """Fields of groups that take part by these ratios."""
    return [
        {"sampling_ratio": one, "expected_cohort": one * small.CLIENTS}
        for one in ratios
    ]


def by_round(*stretches):
    """Groups whose ratios move: rounds and the ratios of the groups in them."""
    segments = [
        tuple(
            Segment(rounds=rounds, sampling_ratio=ratios[m], noise_multiplier=1e-15)
            for rounds, ratios in stretches
        )
        for m in range(len(RATIOS))
    ]
    each = [
        {**one, "segments": own}
        for one, own in zip(by_ratio(RATIOS), segments, strict=True)
    ]
    return changed(small.plan(), each)


def check_bounds(algorithm):
    """Clipped to 2.5: (1.5, 2) twice; to 10: (3, 4) and (6, 8); noise of deviation 5 on all."""
    step, [record], _ = tiny.one_round(
        tiny.setting(replace(algorithm, local=tiny.LOCAL))
    )
    total = np.array([2 * 1.5 + 3 + 6, 2 * 2.0 + 4 + 8]) + tiny.noise(
        algorithm.plan, 0, 5.0
    )
    np.testing.assert_allclose(step, total / 4, rtol=1e-5)
    assert [share.clip_bound for share in record.shares] == list(BOUNDS)
    faced = [record.release_for(share).noise_multiplier for share in record.shares]
    np.testing.assert_allclose(faced, tiny.SIGMAS, rtol=1e-12)


def check_ratios(*ratios):
    """Compare with plain SGD of cohorts drawn here, by the groups' ratios in each round."""

    def check(algorithm):
        world = small.setting(algorithm)
        theta = begin = world.start
        for round_, now in enumerate(ratios, 1):
            cohort = [_drawn(world, round_, m, ratio) for m, ratio in enumerate(now)]
            cohort = [
                world.partition.members[m][found] for m, found in enumerate(cohort)
            ]
            groups = small.loop(world, round_, theta, small.plain_client, cohort)
            updates = [one for group in groups for one in group]
            theta = theta + torch.stack(updates).sum(0) / small.COHORT
        torch.testing.assert_close(
            small.moved(algorithm), theta - begin, rtol=1e-4, atol=1e-6
        )

    return check


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
RHO, PRICE, RADIUS = 0.3, 5.0, 0.05


def like_a_loop(client):
    """Compare with the mean over clients who train for themselves."""

    def check(algorithm):
        expected = small.averaged(small.setting(algorithm), client)
        torch.testing.assert_close(
            small.moved(algorithm), expected, rtol=1e-4, atol=1e-6
        )

    return check


def sam_client(network, batches, rate):
    """SAM on all parameters."""
    small.sam(network, batches, rate, RHO)


def blur_client(network, batches, rate):
    """SGD on the penalised loss, differentiated by autograd."""
    start, optimiser = small.flat(network), small.sgd(network, rate)
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


CLIPPED = np.array([12.0, 16.0])  # four times (3, 4)


def check_smoothing(algorithm):
    """With two parameters the system is [[1 + 2 s, -2 s], [-2 s, 1 + 2 s]]."""
    mean = (CLIPPED + tiny.noise(algorithm.plan, 0, 10.0)) / 4
    expected = np.linalg.solve([[2.0, -1.0], [-1.0, 2.0]], mean)
    np.testing.assert_allclose(in_the_tiny_world(algorithm), expected, rtol=1e-5)


def check_mask(algorithm):
    """One of two coordinates: cut out, clipped, summed, noised, and nothing else moves."""
    step, [record], _ = tiny.one_round(
        tiny.setting(replace(algorithm, local=tiny.LOCAL))
    )
    assert record.dimension == 1
    [kept] = np.flatnonzero(step)
    total = sum(min((3.0, 4.0)[kept] * pixel, 5.0) for pixel in (1, 2, 1, 4))
    expected = (total + tiny.noise(algorithm.plan, 0, 10.0, 1)[0]) / 4
    np.testing.assert_allclose(step[kept], expected, rtol=1e-5)


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
    return SUMS + tiny.noise(algorithm.plan, 0, 10.0), SUMS + tiny.noise(
        algorithm.plan, 1, 2.5
    )


def check_weights(algorithm):
    """Two clients of epsilon 1, two of epsilon 2: weights 1 / 6 and 2 / 6 on single updates."""
    step, _, _ = tiny.one_round(tiny.setting(replace(algorithm, local=tiny.LOCAL)))
    strict, loose = noisy_sums(algorithm)
    np.testing.assert_allclose(step, (strict + 2 * loose) / 6, rtol=1e-5)


def check_one_direction(algorithm):
    """In two dimensions: the part of the strict noisy sum along the loose one; weights r^2."""
    step, _, _ = tiny.one_round(tiny.setting(replace(algorithm, local=tiny.LOCAL)))
    strict, loose = noisy_sums(algorithm)
    along = strict @ loose / (loose @ loose) * loose
    np.testing.assert_allclose(step, 0.25 / 4 * along + 0.75 / 4 * loose, rtol=1e-5)


def check_subspace(directions):
    """Three groups over three rounds: least squares on the last public sums."""

    def check(algorithm):
        world = small.setting(algorithm)
        theta = begin = world.start
        public: list[np.ndarray] = []
        for round_ in range(1, small.ROUNDS + 1):
            found = small.loop(world, round_, theta, small.plain_client)
            sums = [torch.stack(group).sum(0).double().numpy() for group in found]
            public = [sums[2], *public][:directions]
            basis = np.stack(public, axis=1)
            sums[0] = basis @ np.linalg.lstsq(basis, sums[0])[0]
            parts = [
                weight * part for weight, part in zip(small.WEIGHTS, sums, strict=True)
            ]
            theta = theta + torch.from_numpy(sum(parts) / small.COHORT).float()
        torch.testing.assert_close(
            small.moved(algorithm), theta - begin, rtol=1e-4, atol=1e-6
        )

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
    return lambda one: replace(
        one,
        transforms=tuple(
            clip(norm) if part.name == "clip" else part for part in one.transforms
        ),
    )


def check_mean(algorithm):
    """One noisy sum of clipped updates over the expected cohort of four."""
    expected = (CLIPPED + tiny.noise(algorithm.plan, 0, 10.0)) / 4
    np.testing.assert_allclose(in_the_tiny_world(algorithm), expected, rtol=1e-5)


def check_groups(*, kept):
    """A noisy sum per group, its largest coordinates kept, times w_m / (q n)."""

    def check(algorithm):
        strict, loose = noisy_sums(algorithm)
        if kept < 1:
            strict, loose = (
                np.where(np.abs(v) == np.abs(v).max(), v, 0) for v in (strict, loose)
            )
        expected = tiny.WEIGHTS[0] / 4 * strict + tiny.WEIGHTS[1] / 4 * loose
        np.testing.assert_allclose(in_the_tiny_world(algorithm), expected, rtol=1e-5)

    return check


def check_scaled(algorithm):
    """sum_m s_m sum_i clip(Delta_i) with noise of deviation max s_m sigma_m C, over sum s_m r_m."""
    total = SCALES[0] * SUMS + SCALES[1] * SUMS + tiny.noise(algorithm.plan, 0, 2.5)
    expected = total / (2 * SCALES[0] + 2 * SCALES[1])
    np.testing.assert_allclose(in_the_tiny_world(algorithm), expected, rtol=1e-5)


def check_tuned(client):
    """The shared training is a loop's, and a client's last model is fine-tuned by plain SGD."""

    def check(algorithm):
        like_a_loop(client)(algorithm)
        assert algorithm.personalisation.per_client
        world, found = small.setting(algorithm), small.played(algorithm)
        context = RoundContext(
            small.ROUNDS, found.theta, found.server, None, found.personal
        )
        group, members = (
            algorithm.plan.groups[0],
            np.asarray(world.partition.members[0]),
        )
        later = small.ROUNDS + 1
        batch = client_batch(world, context, group, members, round_=later)
        models = algorithm.personalisation.deploy(found.theta, batch).expand(
            len(members), -1
        )
        for model, number in zip(models, members, strict=True):
            network = small.network_at(world, found.theta)
            batches = small.mini_batches(world, later, int(number))
            small.plain_client(network, batches, world.learning_rate(small.ROUNDS))
            torch.testing.assert_close(model, small.flat(network), rtol=1e-4, atol=1e-5)

    return check


def check_alone(algorithm):
    """Each participant goes on where it stopped; the global model stays, nobody else moves."""
    world = small.setting(algorithm)
    own: dict[int, torch.Tensor] = {}
    for round_ in range(1, small.ROUNDS + 1):
        for number in (
            int(one) for group in participants(world, round_) for one in group
        ):
            network = small.network_at(world, own.get(number, world.start))
            real = small.mini_batches(world, round_, number)
            small.plain_client(network, real, world.learning_rate(round_))
            own[number] = small.flat(network)
    found = small.played(algorithm)
    torch.testing.assert_close(found.theta, world.start, rtol=0, atol=0)
    torch.testing.assert_close(dict(found.personal), own, rtol=1e-4, atol=1e-6)


FINE_TUNING: dict[str, case.Mutation] = {
    "no fine-tuning": case.having(personalisation=shared()),
    "fine-tuning of nothing": case.having(personalisation=own_model()),
    "twice the fine-tuning": case.having(
        personalisation=replace(
            fine_tuned(),
            deploy=lambda thetas, batch: fine_tuned().deploy(
                fine_tuned().deploy(thetas, batch), batch
            ),
        )
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


def forgetting(one):
    """Clients start every round with half of what they had."""

    def train(batch):
        own_part = None if batch.personal is None else batch.personal / 2
        return private_sgd().train(replace(batch, personal=own_part))

    return replace(one, local=LocalRule("forgets", train))


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
    case.Case("GDPFed", tiny.plan(), check_groups(kept=1.0), GROUPS),
    case.Case("GDPFed-op", tiny.plan(), check_groups(kept=1.0), GROUPS),
    case.Case("planned", tiny.plan(
        release="joint", scales=SCALES, sigmas=(1.0, 0.5)), check_scaled, {
        "scaled before clipping": lambda one: replace(one, transforms=one.transforms[::-1]),
        "no scale": lambda one: replace(one, transforms=one.transforms[:1]),
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
