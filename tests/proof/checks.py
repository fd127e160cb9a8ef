"""What must hold of ``privplan.proof``, as functions of it or of an altered one."""

import itertools
import random
from fractions import Fraction

from flint import arb, ctx


def units_of(masses):
    """Masses as whole numbers of units."""
    sums, _ = masses.sums()
    return [after - before for before, after in itertools.pairwise(sums)]


def of_units(program, units):
    """Masses that are so many units."""
    return program.UpperMasses([arb(number) / program.SCALE for number in units])


def balls_are_rounded_up(program):
    scale = int(program.SCALE)
    (third,) = units_of(program.UpperMasses([arb(1) / 3]))
    assert Fraction(third, scale) >= Fraction(1, 3)
    (wide,) = units_of(program.UpperMasses([arb(1, 0.25)]))
    assert Fraction(wide, scale) >= Fraction(5, 4)
    assert units_of(program.UpperMasses([arb(-1), arb(1)])) == [0, scale]


def products_are_rounded_up(program):
    tiny = of_units(program, [1, 2])
    assert units_of(tiny * tiny) == [1, 1, 1]
    scale = int(program.SCALE)
    draw = random.Random(1)
    left_units = [draw.getrandbits(draw.randint(1, 170)) for _ in range(9)]
    right_units = [draw.getrandbits(draw.randint(1, 170)) for _ in range(9)]
    expected = [0] * 17
    for i, j in itertools.product(range(9), range(9)):
        expected[i + j] += left_units[i] * right_units[j]
    product = of_units(program, left_units) * of_units(program, right_units)
    assert units_of(product) == [-(-mass // scale) for mass in expected]


def windows_lose_no_mass(program):
    masses = of_units(program, [1, 2, 4, 8, 16, 32])
    loss = program.UpperLoss(0.5, -2, masses, of_units(program, [64]))
    inside = loss.within(0, 2)
    assert inside.lowest == 0
    assert units_of(inside.masses) == [1 + 2 + 4, 8, 16]
    assert units_of(inside.infinite) == [64 + 32]
    lower = loss.within(-9, 9)
    assert lower.lowest == -2
    assert units_of(lower.masses) == [1, 2, 4, 8, 16, 32]


def infinite_losses_add_up(program):
    half = program.UpperMasses([arb(1) / 2])
    loss = program.UpperLoss(0.5, 0, half, of_units(program, [3]))
    heavier = program.UpperLoss(0.5, 0, half, of_units(program, [5]))
    assert units_of(loss.plus(heavier, -9, 9).infinite) == [8]


def powers_count_each_round(program):
    # A loss that is 0 or 1, each with a chance of a half: binomial masses.
    coin = program.UpperLoss(
        1.0, 0, program.UpperMasses([arb(1) / 2] * 2), of_units(program, [])
    )
    scale = int(program.SCALE)
    assert units_of(coin.times(5, 0, 9).masses) == [
        n * scale // 32 for n in (1, 5, 10, 10, 5, 1)
    ]


def delta_is_the_sum_over_losses_above(program):
    halves = program.UpperMasses([arb(1) / 4] * 3)
    loss = program.UpperLoss(0.5, 0, halves, program.UpperMasses([arb(1) / 8]))
    for epsilon in (-1.0, 0.0, 0.25, 0.5, 0.75, 2.0):
        exact = arb(1) / 8
        for value in (0.0, 0.5, 1.0):
            if value > epsilon:
                exact += (1 - (arb(epsilon) - arb(value)).exp()) / 4
        assert abs(loss.delta(epsilon) - exact) < arb(2) ** -200


def dots_are_above_profiles(program):
    shift = arb(2) / 3
    alone = program.sampled(shift, arb("0.1"))
    person = program.sampled(shift, arb("0.1"), 3)
    for profile in (*alone, *person):
        loss = program.connected(profile, 0.25, -8, 8, 4)
        for place in range(-9, 12):
            epsilon = 0.25 * place + 0.1
            assert not loss.delta(epsilon) < profile(arb(epsilon))
        # At the points themselves the two agree.
        assert abs(loss.delta(0.5) - profile(arb(0.5))) < arb(2) ** -110


def dots_above_a_jump_are_convex(program):
    # One value is too large; its point is no corner of the hull.
    def profile(epsilon):
        return (1 - epsilon.exp() / 2).max(arb(0)) + (
            0.01 if abs(epsilon + 0.5) < 0.1 else 0
        )

    loss = program.connected(profile, 0.25, -4, 8, 4)
    everything = loss.masses.total() + loss.infinite
    assert everything.weighed(arb(1)) < 1 + arb(2) ** -110
    for place in range(-4, 8):
        assert loss.delta(0.25 * place) >= (1 - arb(0.25 * place).exp() / 2).max(arb(0))


def puts_are_at_the_upper_end(program):
    allocation = program.Allocation(1.0, 4, 0)
    middle = arb("1.1")
    upper = arb("1.15")
    assert allocation.put(middle.union(upper)) >= allocation.put(upper) * (
        1 - arb(2) ** -100
    )


def puts_above_all_ratios_are_forwards(program):
    # With so much noise no ratio reaches 1.9: E[1.9 - R] = 0.9.
    put = program.Allocation(30.0, 2, 0).put(arb("1.9"))
    assert arb("0.9") <= put <= arb("0.9001")


def puts_of_one_round_are_black_scholes(program):
    # One of one round: R is lognormal, and its put has a closed form.
    allocation = program.Allocation(1.0, 1, 2)
    for strike in ("0.3", "0.9", "1.7"):
        x = arb(strike)
        exact = x * program.beyond(-x.log() - arb(1) / 2) - program.beyond(
            -x.log() + arb(1) / 2
        )
        assert exact <= allocation.put(x) <= exact + arb("1e-5")
    gaussian, _ = program.sampled(arb(1), arb(1))
    for profile in (allocation.remove, allocation.add):
        for epsilon in (arb("-0.7"), arb("0.4"), arb("1.3")):
            exact = gaussian(epsilon)
            assert exact <= profile(epsilon) <= exact + arb("1e-4")


def doubt_is_no_proof(program):
    program.shown = lambda claim: (arb(0.5, 0.1), 1)
    history = [program.Rounds(1.0, 0.1, "poisson", 2)]
    assert program.prove(history, "add_remove", 1.0, 0.5).outcome.startswith(
        "not proven"
    )


def both_directions_are_proven(program):
    rounds = [
        program.Rounds(1.0, 0.1, "poisson", 2),
        program.Rounds(2.0, 1.0, "full", 3),
    ]
    directions = program.directions(rounds, "add_remove", 0)
    assert len(directions) == 2
    removed, added = directions
    assert [count for _, count in removed] == [count for _, count in added] == [2, 1]
    assert removed[0][0](arb(1)) > added[0][0](arb(1))


def pairs_that_turn_round_are_alike(program):
    # h(1/x) = 1 - 1/x + h(x) / x where P and Q may be exchanged.
    for sampling in ("poisson", "fixed_size"):
        rounds = program.Rounds(1.5, 0.2, sampling, 1)
        profile, _ = program.pair_of(rounds, "replace_one", 0)
        x = arb("0.3").exp()
        turned = 1 - 1 / x + profile(arb("0.3")) / x
        assert abs(profile(-arb("0.3")) - turned) < arb(2) ** -100


def caps_are_mixtures_of_two_distances(program):
    # One of 7 draws hits the cap, where a client moves the sum by 2 C.
    rounds = program.Rounds(1.5, 0.2, "capped_poisson:7", 1)
    pair = program.pair_of(rounds, "add_remove", 0)
    below_cap = program.sampled(arb(2) / 3, arb(0.2))
    at_cap = program.sampled(arb(4) / 3, arb(0.2))
    for profile, usual, rare in zip(pair, below_cap, at_cap, strict=True):
        for epsilon in (arb("-0.4"), arb("0.3"), arb("1.1")):
            exact = (6 * usual(epsilon) + rare(epsilon)) / 7
            assert abs(profile(epsilon) - exact) < arb(2) ** -150


def counts_are_sums_over_outcomes(program):
    fall = (-arb("0.7")).exp()
    for moved in (1, 3):
        profile = program.discrete_laplace(arb("0.7"), moved)
        for epsilon in (arb("-1.3"), arb("0.1"), arb("0.8"), arb("2.5")):
            exact = arb(0)
            for k in range(-300, 300):
                excess = fall ** abs(k) - epsilon.exp() * fall ** abs(k + moved)
                exact += excess.max(arb(0)) * (1 - fall) / (1 + fall)
            assert abs(profile(epsilon) - exact) < arb(2) ** -150


def laplace_is_its_closed_form(program):
    profile = program.laplace(arb("0.8"))
    # Total variation 1 - e^(-bound / 2); nothing beyond the bound; turned round alike.
    assert abs(profile(arb(0)) - 1 + (-arb("0.4")).exp()) < arb(2) ** -200
    assert profile(arb("0.8001")) == 0
    assert profile(arb("0.7999")) > 0
    for epsilon in (arb("0.3"), arb("1.1")):
        turned = 1 - (-epsilon).exp() + profile(epsilon) * (-epsilon).exp()
        assert abs(profile(-epsilon) - turned) < arb(2) ** -200


def everybody_moves_a_sum_by_what_a_person_has(program):
    def shift(sampling, relation):
        return program.pair_of(program.Rounds(4.0, 1.0, sampling, 1), relation, 0)

    assert shift("full", "add_remove") == arb(1) / 4
    assert shift("full", "replace_one") == arb(1) / 2
    assert shift("min_separation:5", "zero_out") == arb(1) / 4
    three = "poisson (up to 3 clients of one person)"
    assert shift(three, "add_remove") == arb(3) / 4
    assert shift("random_allocation:8", "replace_one") == arb(1) / 2


def counts_move_by_what_a_person_has(program):
    def variation(family, sampling):
        rounds = program.Rounds(2.0, 1.0, sampling, 1, family)
        removed, added = program.pair_of(rounds, "add_remove", 0)
        assert abs(removed(arb(0)) - added(arb(0))) < arb(2) ** -200
        return removed(arb(0))

    # Noise of deviation 2 has scale 2 / sqrt(2): 1 - e^(-moved sqrt(2) / 4).
    of_pairs = "full (up to 2 clients of one person)"
    for sampling, moved in (("full", 1), (of_pairs, 2)):
        exact = 1 - (-moved * arb(2).sqrt() / 4).exp()
        assert abs(variation("laplace", sampling) - exact) < arb(2) ** -200
    exact = program.discrete_laplace(arb(2).sqrt() / 2, 2)(arb(0))
    assert abs(variation("discrete_laplace", of_pairs) - exact) < arb(2) ** -200
    # The chance of a true bit less that of a false one: tanh(bound / 2).
    exact = (arb(2).sqrt() / 4).tanh()
    assert abs(variation("randomized_response", "full") - exact) < arb(2) ** -200


CHECKS = [
    balls_are_rounded_up,
    products_are_rounded_up,
    windows_lose_no_mass,
    infinite_losses_add_up,
    powers_count_each_round,
    delta_is_the_sum_over_losses_above,
    dots_are_above_profiles,
    dots_above_a_jump_are_convex,
    puts_are_at_the_upper_end,
    puts_above_all_ratios_are_forwards,
    puts_of_one_round_are_black_scholes,
    both_directions_are_proven,
    pairs_that_turn_round_are_alike,
    caps_are_mixtures_of_two_distances,
    counts_are_sums_over_outcomes,
    laplace_is_its_closed_form,
    everybody_moves_a_sum_by_what_a_person_has,
    counts_move_by_what_a_person_has,
    doubt_is_no_proof,  # last, since it replaces a function of the module
]


def broken(program):
    """Names of the checks that fail."""
    failed = []
    for check in CHECKS:
        try:
            with ctx.workprec(program.BITS):
                check(program)
        except (AssertionError, ArithmeticError, program.NotProvableError):
            failed.append(check.__name__)
    return failed
