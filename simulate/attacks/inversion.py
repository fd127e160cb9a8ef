"""Inversion of gradients: labels, dense inputs and HyperFL's body by ratios, then images by search.

Closed form. For a dense layer z = W a + b and one record, the gradients are dL/db = delta and
dL/dW = delta a^T, so a = (dL/dW)^T delta / |delta|^2: the ratio of weight to bias gradient
(Phong et al. 2018, Section 4; Geiping et al. 2020, Proposition 3.1). Where the dense layer is the
first layer, a is the record. With several records or steps the same expression is the least
squares fit of one input to the sum, and its residual says how far the update is from rank one.

Search (IG). J. Geiping, H. Bauermeister, H. Droege, M. Moeller, Inverting Gradients, NeurIPS 2020,
Eq. 4: minimise 1 - cosine(gradient of the dummy images, released gradient) + weight * total
variation, by Adam on the sign of the gradient. Where the input of the first dense layer follows in
closed form, the features and the gradients below that layer are compared instead, and neither
label nor head is needed; on a hypernetwork, after its closed form. The learning rate falls from
0.2 as a half cosine, and the start is the data set's public mean pixel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from simulate.attacks.view import Guess, Options, View, register
from simulate.models import layers as parts
from simulate.models.layers import Conv, Layer, Linear, Pool, Relu
from simulate.models.network import Model, Shapes, join_head, split_head

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class DenseInput:
    """A dense layer's input and the gradient above it."""

    inputs: Tensor  # the input [inputs]
    slope: Tensor  # gradient by the layer's output [outputs]
    residual: float  # norm of what the rank-one fit leaves of the weight gradient, over its norm


def ratio(weight: Tensor, bias: Tensor) -> DenseInput:
    """Least squares fit of weight = bias inputs^T, in float64."""
    squares = float(bias.double().square().sum())
    if squares == 0:
        return DenseInput(torch.zeros_like(weight[0]), bias, 1.0)
    inputs = (
        bias @ weight
    ).double() / squares  # [outputs] @ [outputs, inputs]: no copy
    # In blocks of rows: a copy of a large matrix in float64 needs too much memory.
    norm = math.sqrt(
        sum(float(part.double().square().sum()) for part in torch.split(weight, 4096))
    )
    explained = float(inputs.square().sum()) * squares
    rest = max(0.0, norm * norm - explained)
    return DenseInput(
        inputs.to(weight.dtype), bias, math.sqrt(rest) / max(norm, 1e-300)
    )


def dense_layers(model: Model) -> list[tuple[int, slice, slice, tuple[int, int]]]:
    """Dense layers of a chain of layers: (index, weight slice, bias slice, (outputs, inputs))."""
    layers = getattr(model, "layers", ())
    found, start = [], 0
    for index, layer in enumerate(layers):
        match layer:
            case Linear(inputs, outputs):
                end = start + inputs * outputs
                weights, biases = slice(start, end), slice(end, end + outputs)
                found.append((index, weights, biases, (outputs, inputs)))
                start = end + outputs
            case Conv(inputs, outputs, size, _):
                start += outputs * (inputs * size * size + 1)
    return found


def labels_of(view: View) -> Tensor | None:
    """Labels inferred from the gradient of the head's bias [records]; None when not released.

    The gradient of the summed cross-entropy by the bias of class c is the sum over records of
    (probability of c - 1[label is c]). With one record its only negative entry is the label
    (Zhao, Mopuri and Bilen 2020). With several, labels are assigned one after another to the
    class with the smallest remaining entry, and each assignment adds one (Geng et al. 2021,
    with the mean probability 1 / classes of an untrained network).
    """
    classes = view.model.classes
    bias = slice(view.model.head.stop - classes, view.model.head.stop)
    if view.kind != "parameters" or not bool(view.mask[bias].all()):
        return None
    slopes = view.gradient[bias].double().clone()
    if view.records == 1:
        return slopes.argmin().reshape(1)
    per_client = view.records / max(
        1, view.clients
    )  # a client's gradient is a mean over records
    slopes = slopes * per_client - view.records / classes
    labels = []
    for _ in range(view.records):
        label = int(slopes.argmin())
        labels.append(label)
        slopes[label] += 1.0
    return torch.tensor(sorted(labels), device=slopes.device)


def first_dense(view: View, gradient: Tensor) -> tuple[int, DenseInput] | None:
    """Index and fit of the first dense layer of the body or head whose update is released."""
    for index, weight, bias, shape in dense_layers(view.model):
        if bool(view.mask[weight].all()) and bool(view.mask[bias].all()):
            return index, ratio(gradient[weight].view(shape), gradient[bias])
    return None


# --- HyperFL: a client's private body, embedding and gradient from its hypernetwork's update. -----
# A client's hypernetwork generates its body theta = H h + b from the hidden layer
# h = relu(V v + c) of its private embedding v. After one SGD step at rate eta with body gradient
# g, the updates are -eta g for b and -eta g h^T for H, and likewise -eta s v^T for V and -eta s
# for c with s the gradient above the hidden layer. So g is the update of b over -eta, and h, theta
# and v are ratios: everything private but the head. docs/evidence/hyperfl.md has the derivation.
#
# The body's last dense layer z = W a + w gives a and delta = dL/dz by the same ratio. The gradient
# of the pseudo-loss <delta, z(x)> by the body's parameters is g at the client's image x, so that
# inversion of gradients on the pseudo-loss needs neither embedding, head nor label.


@dataclass(frozen=True)
class Body:
    """What the update of a hypernetwork reveals of a client."""

    hidden: Tensor  # hidden layer of the hypernetwork [H]
    embedding: Tensor  # the client's embedding [E]
    body: Tensor  # the client's private body [made]
    gradient: Tensor  # gradient of the loss by the body [made]
    # norm of what the rank-one fit leaves of the heads' update, over its norm; far above 0 for one
    # record and step, the gradient vanished
    residual: float
    view: View  # the release as a view of model parameters: body known, head unknown (zero)


def body_gradient(view: View) -> Body:
    """Recover hidden layer, embedding, body and body gradient from a hypernetwork's update."""
    sizes = view.hypernetwork
    lengths = [
        sizes.hidden * sizes.embedding,
        sizes.hidden,
        sizes.generated_size * sizes.hidden,
        sizes.generated_size,
    ]
    _, _, heads, own = torch.split(view.parameters, lengths)
    moved = view.update / (-view.learning_rate * view.steps)
    to_layer, to_offsets, to_heads, gradient = torch.split(moved, lengths)
    inner = ratio(to_layer.view(sizes.hidden, sizes.embedding), to_offsets)
    fit = ratio(to_heads.view(sizes.generated_size, sizes.hidden), gradient)
    body = heads.view(sizes.generated_size, sizes.hidden) @ fit.inputs + own
    head = torch.zeros(view.model.head.stop - view.model.head.start, device=body.device)
    as_parameters = replace(
        view,
        kind="parameters",
        parameters=join_head(view.model, body, head),
        observed=split_head(
            view.model, torch.arange(view.model.parameters, device=body.device)
        )[0],
        update=gradient * (-view.learning_rate * view.steps),
    )
    return Body(fit.inputs, inner.inputs, body, gradient, fit.residual, as_parameters)


def last_dense(body: Body) -> tuple[int, DenseInput] | None:
    """Index among the layers and fit of the body's last dense layer; None without one."""
    model, gradient = body.view.model, body.view.gradient
    found = [
        dense for dense in dense_layers(model) if dense[1].stop <= model.head.start
    ]
    if not found:
        return None
    index, weight, bias, shape = found[-1]
    return index, ratio(gradient[weight].view(shape), gradient[bias])


@register("closed", source="Phong et al. 2018; Zhao, Mopuri, Bilen 2020")
def closed(views: Sequence[View], options: Options, progress: Progress) -> list[Guess]:
    """Label and dense input of each release; the image where the first layer is dense."""
    guesses = []
    for done, view in enumerate(views, start=1):
        guesses.append(_guess(view))
        progress(done, len(views))
    return guesses


def _guess(view: View) -> Guess:
    if view.kind == "nothing":
        return Guess(note="nothing is released")
    numbers: dict[str, float] = {}
    labels = labels_of(view)
    if view.kind == "hypernetwork":
        found = body_gradient(view)
        view = found.view
        numbers = {
            "residual": found.residual,
            "gradient_norm": float(found.gradient.norm()),
        }
    dense = first_dense(view, view.gradient)
    if dense is None:
        note = "" if labels is not None else "no dense layer is released"
        return Guess(labels=labels, numbers=numbers, note=note)
    index, fit = dense
    numbers["dense_residual"] = fit.residual
    if index > 0:
        return Guess(labels=labels, numbers=numbers)
    pixels = view.outputs(fit.inputs.view(view.model.input_shape))
    return Guess(pixels.clamp(0, 1)[None], labels, numbers)


# --- Search: images whose gradients have the direction of the released ones. ---------------------

Objective = Callable[[Tensor, float], Tensor]
"""(model inputs [K, n, channels, height, width], completed share of the steps) to values [K]."""

RATE = 0.2  # first learning rate of Adam
VARIATION = 1e-2  # weight of the total variation, of model inputs
MOST_RECORDS = 10  # most records that are reconstructed from one release


@register("ig", source="Geiping et al. 2020; with features, docs/attacks.md")
def ig(views: Sequence[View], options: Options, progress: Progress) -> list[Guess]:
    """Invert all releases at the same time."""
    first = views[0]
    if first.kind == "nothing":
        return [Guess(note="nothing is released") for _ in views]
    shape = (len(views), min(first.records, MOST_RECORDS), *first.model.input_shape)
    numbers: list[dict[str, float]] = [{} for _ in views]
    labels = [labels_of(view) for view in views]
    objective, unknowns = None, []
    if first.kind == "hypernetwork":
        bodies = [body_gradient(view) for view in views]
        numbers = [
            {"residual": body.residual, "gradient_norm": float(body.gradient.norm())}
            for body in bodies
        ]
        objective = dense_objective([body.view for body in bodies])
        if objective is None:
            return [Guess(note="the body has no dense layer") for _ in views]
    elif all(known(view) is not None for view in views):
        objective = dense_objective(views)
    if objective is None:
        inferred = [one[: shape[1]] for one in labels if one is not None]
        if len(inferred) == len(views):
            labels = list(inferred)
            objective = gradient_objective(views, torch.stack(inferred))
        else:  # labels are unknowns, too
            device = first.parameters.device
            logits = torch.zeros(
                *shape[:2], first.model.classes, device=device, requires_grad=True
            )
            objective, unknowns = gradient_objective(views, logits), [logits]
    images, values = descend(objective, shape, first, options.steps, progress, unknowns)
    if unknowns:
        labels = list(unknowns[0].detach().argmax(2).cpu())
    return [
        Guess(
            image,
            None if label is None else label.cpu(),
            {"objective": float(value) if bool(value.isfinite()) else 2.0, **further},
        )
        for image, label, value, further in zip(
            images, labels, values, numbers, strict=True
        )
    ]


def descend(
    objective: Objective,
    shape: tuple[int, ...],
    view: View,
    steps: int,
    progress: Progress,
    unknowns: Sequence[Tensor] = (),
) -> tuple[Tensor, Tensor]:
    """Minimise an objective over inputs of pixels in [0, 1]; returns pixels and last values."""
    device = view.parameters.device
    low, high = (
        view.inputs(torch.full(shape[2:], end, device=device)) for end in (0.0, 1.0)
    )
    # Zero is the public mean pixel; where it is black, the start is half white.
    grey = view.inputs(torch.full(shape[2:], 0.5, device=device))
    start = grey if bool((low == 0).all()) else torch.zeros_like(grey)
    inputs = start.expand(shape).clone().requires_grad_()
    optimiser = torch.optim.Adam([inputs, *unknowns], lr=RATE)
    for step in range(steps):
        share = step / steps
        optimiser.param_groups[0]["lr"] = RATE * (1 + math.cos(math.pi * share)) / 2
        optimiser.zero_grad()
        values = objective(inputs, share) + VARIATION * total_variation(inputs)
        torch.autograd.backward(values.sum())
        if inputs.grad is not None:
            inputs.grad.sign_()
        optimiser.step()
        with torch.no_grad():
            inputs.copy_(torch.minimum(torch.maximum(inputs, low), high))
        progress(step + 1, steps)
    with torch.no_grad():
        values = objective(inputs, 1.0).cpu()
    return view.outputs(inputs.detach()).clamp(0, 1).cpu().nan_to_num(0.5), values


def total_variation(x: Tensor) -> Tensor:
    """Mean absolute difference of neighbouring pixels [K], for x [K, n, ..., height, width]."""
    rows = (x[..., 1:, :] - x[..., :-1, :]).abs().flatten(1).mean(1)
    return rows + (x[..., 1:] - x[..., :-1]).abs().flatten(1).mean(1)


# --- All gradients: their direction is compared with the released one. ---------------------------


def named_parameters(shapes: Shapes, theta: Tensor) -> dict[str, Tensor]:
    """Views of a flat parameter vector [..., D] by name, for ``functional_call``."""
    flat = torch.split(theta, [math.prod(shape) for _, shape in shapes], -1)
    return {
        name: one.view(*theta.shape[:-1], *shape)
        for (name, shape), one in zip(shapes, flat, strict=True)
    }


def cosine_distance(
    found: Mapping[str, Tensor],
    target: Mapping[str, Tensor],
    masks: Mapping[str, Tensor],
) -> Tensor:
    """1 - cosine of gradients [K], each a mapping of tensors [K, ...]."""
    product = square = norm = torch.zeros(())
    for name, wanted in target.items():
        value = found[name] * masks[name]
        product = product + (value * wanted).flatten(1).sum(1)
        square = square + value.square().flatten(1).sum(1)
        norm = norm + wanted.square().flatten(1).sum(1)
    return 1 - product / (square * norm).clamp(min=1e-30).sqrt()


def gradient_objective(views: Sequence[View], labels: Tensor) -> Objective:
    """Cosine distance of dummy gradients; ``labels`` [K, n], or logits that are unknowns, too."""
    first = views[0]
    module, model = first.model.module(), first.model
    shapes = model.shapes
    same = all(torch.equal(view.parameters, first.parameters) for view in views)
    theta = (
        first.parameters if same else torch.stack([view.parameters for view in views])
    )
    parameters = named_parameters(shapes, theta)
    target = named_parameters(shapes, torch.stack([view.gradient for view in views]))
    masks = named_parameters(shapes, torch.stack([view.mask for view in views]))

    def loss(values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(module, values, (x,)), y)

    gradients = vmap(grad(loss), in_dims=(None if same else 0, 0, 0))

    def objective(inputs: Tensor, share: float) -> Tensor:
        y = labels.softmax(2) if labels.is_floating_point() else labels
        return cosine_distance(gradients(parameters, inputs, y), target, masks)

    return objective


# --- The objective of IG below the first dense layer, whose input is known in closed form. -------
# The ratio of the dense layer's weight and bias gradients is its input a, and its bias gradient
# is delta = dL/dz. A dummy image x is therefore compared with two things that
# the release determines: the features a(x) with a, and the gradients by the layers below. The
# latter are those of the pseudo-loss <W^T delta, a(x)>, so that neither label nor head is needed.
#
# Maximum pooling makes the landscape non-convex: a wrong position of a maximum is a local
# minimum. It is annealed (graduated non-convexity, Blake and Zisserman 1987): in the first half
# of the steps a pool is the mean of its pixels weighted by softmax(pixels / temperature), and the
# temperature falls to zero.

FEATURES = 0.3  # weight of the squared error of the features; the cosine distance has 1
ANNEALED = (
    0.5  # share of the steps in which pooling's temperature falls; then it is exact
)
TEMPERATURES = (1.0, 0.02)  # first and last, in deviations of the pool's input
RANK_ONE = 0.5  # largest residual of the closed form at which features and slope are taken as known


def known(view: View) -> DenseInput | None:
    """Fit of the first dense layer where it determines one record; else None."""
    found = first_dense(view, view.gradient) if view.records == 1 else None
    return None if found is None or found[1].residual > RANK_ONE else found[1]


def dense_objective(views: Sequence[View]) -> Objective | None:
    """Distance of dummy images from the features and the gradients below the dense layer."""
    found = [first_dense(view, view.gradient) for view in views]
    fits = [one[1] for one in found if one is not None]
    if len(fits) < len(found) or found[0] is None:
        return None
    index, model = found[0][0], views[0].model
    whole: tuple[Layer, ...] = model.layers  # type: ignore[attr-defined]  # a chain
    layers, dense = whole[:index], whole[index : index + 1]
    size = parts.count(layers)
    bodies = [view.parameters[:size] for view in views]
    shared = all(torch.equal(body, bodies[0]) for body in bodies)
    parameters = bodies[0] if shared else torch.stack(bodies)
    target = torch.stack([view.gradient[:size] for view in views])
    mask = torch.stack([view.mask[:size] for view in views])
    features = torch.stack([fit.inputs for fit in fits])
    squares = features.square().sum(1).clamp(min=1e-30)
    by_features = []  # the gradient by the features, up to a factor
    for view, fit in zip(views, fits, strict=True):
        end = size + parts.count(dense)
        slope = fit.slope @ parts.split(dense, view.parameters[size:end])[0][0]
        by_features.append(slope / slope.norm().clamp(min=1e-30))
    slopes = torch.stack(by_features)

    # Standard deviation of each pool's input on normal images, the unit of its temperature.
    source = torch.Generator().manual_seed(0)
    normal = torch.randn(16, *model.input_shape, generator=source).to(bodies[0].device)
    scales = []
    for end, layer in enumerate(layers):
        if isinstance(layer, Pool):
            before = layers[:end]
            values = parts.forward(before, bodies[0][: parts.count(before)], normal)
            scales.append(float(values.std()))

    def pseudo(
        theta: Tensor, x: Tensor, slope: Tensor, temperatures: Sequence[float]
    ) -> tuple[Tensor, Tensor]:
        outputs = _forward(layers, theta, x, temperatures).flatten(1)
        return (outputs @ slope).sum(), outputs

    def objective(inputs: Tensor, share: float) -> Tensor:
        hot, cold = TEMPERATURES
        now = 0.0 if share >= ANNEALED else hot * (cold / hot) ** (share / ANNEALED)
        gradient = grad(
            partial(pseudo, temperatures=[s * now for s in scales]), has_aux=True
        )
        in_dims = (None if shared else 0, 0, 0)
        found, outputs = vmap(gradient, in_dims=in_dims)(parameters, inputs, slopes)
        distance = inputs.new_zeros(len(inputs))
        if size:
            distance = 1 - functional.cosine_similarity(found * mask, target, dim=1)
        if views[0].records == 1:
            errors = (outputs[:, 0] - features).square().sum(1) / squares
            distance = distance + FEATURES * errors
        return distance

    return objective


def _forward(
    layers: tuple[Layer, ...], theta: Tensor, x: Tensor, temperatures: Sequence[float]
) -> Tensor:
    """Outputs of layers below a dense one, each pool at its temperature; 0 is the maximum."""
    remaining = iter(temperatures)
    for layer, part in zip(layers, parts.split(layers, theta), strict=True):
        match layer:
            case Conv():
                x = functional.conv2d(x, part[0], part[1], padding=layer.padding)
            case Relu(leak):
                x = functional.leaky_relu(x, leak)
            case Pool():
                x = _pooled(x, next(remaining))
    return x


def _pooled(x: Tensor, temperature: float) -> Tensor:
    """Mean over squares of 2 x 2 pixels weighted by softmax(pixels / temperature)."""
    if temperature == 0:
        return functional.max_pool2d(x, 2)
    height, width = x.shape[-2] // 2 * 2, x.shape[-1] // 2 * 2
    corners = torch.stack(
        [x[..., i:height:2, j:width:2] for i in (0, 1) for j in (0, 1)]
    )
    return (corners * (corners / temperature).softmax(0)).sum(0)
