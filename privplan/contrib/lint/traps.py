"""Traps that any script can show, by the text of its statements."""

from __future__ import annotations

import ast
import re

from privplan.contrib.lint.executions import several
from privplan.contrib.lint.reading import Findings, Options
from privplan.contrib.lint.script import Script
from privplan.contrib.lint.source import Source
from privplan.contrib.lint.syntax import Call

# Functions that draw or add noise, by their names.
_NOISE = (
    r"\b(normal_?|randn(_like)?|laplace|standard_normal|(add_|gaussian_|add_gaussian_|add_dp_)noise"
    r"(_inplace|_to_params)?|gaussian_noise|noise_like)\("
)
_UPDATE = (
    r"\b(\w+_)?(aggregated?|deltas?|grads?|gradients?|mean|model|module|net|network|noise|params?"
    r"|parameters|state|sum|total|updates?|weights)[0-9_]*\b"
)
# Functions that bound a norm; those that bound each value do where an update is their
# argument.
_CLIP = (
    r"\b(clip_(by_)?(global_)?norm_?|clip_grad_norm_?|clip_(model_)?update|clip_l2|clip_gradients?"
    r"|compute_clip_model_update|l2_clip|clip_delta|clip_weights|clip_parameters"
    rf"|constrain_sensitivity|(clip|clamp)_?(?=\({_UPDATE}))\("
)
_QUANTILE = r"\b((nan)?(median|quantile|percentile)|kthvalue)\("
_CLIPPING_NORM = r"(?:clip|max_grad_norm|max_norm|norm_bound)\w* ?= ?([^,=]*)"
_HALF = (
    rf"{_UPDATE}\.(half|bfloat16)\(\)|({_UPDATE}\.(to|astype|type|cast)|{_NOISE[:-2]})\("
    r"[^)]*\b(float16|bfloat16|half)\b"
)
_CLIENT = (
    r"(?<!not )(?<!no )(?<!than )(?<!of )(?<!without )"
    r"\b(client|user|patient|participant|device|hospital)[- ]level\s+"
    r"(differential(ly)?[ -]priva\w+|dp\b|privacy|guarantee|\(?epsilon|protection)"
)
_COPIED = r"load|set_|copy|restore|global|previous|checkpoint|server"
_HALF_COST = "the coarse grid of the sum shows which value the noise was added to"
_ORDER_COST = (
    "clipping scales the noise down with the value, and the sum is not protected by it"
)
_QUANTILE_COST = "a release without noise, which no accountant counts"
UNIT_COST = "a client with many records has no bound that the file accounts for"


def find(source: Source, script: Script, findings: Findings) -> None:
    """Add the alarms of noise, clipping and precision."""
    lines = [re.sub(r"\s+|#.*", " ", line) for line in source.text.splitlines()]
    noised: set[tuple[ast.AST, str]] = set()
    quantiles: set[str] = set()  # names of quantiles
    for node in script.nodes:
        if not isinstance(node, ast.Assign | ast.AugAssign | ast.Expr | ast.Return):
            continue
        text = " ".join(lines[node.lineno - 1 : node.end_lineno]).strip()
        scope = script.scope[node]
        name = text.partition(" ")[0]
        noise = re.search(_NOISE, text)
        clip = re.search(_CLIP, text)
        if re.search(_HALF, text):
            findings.alarm("half-precision", "half precision", _HALF_COST, node.lineno)
        if clip:
            clipped = text[clip.end() :]
            for word in _words(clipped):
                if (scope, word) in noised:
                    message = f"{word!r} gets noise before it is clipped"
                    findings.alarm(
                        "noise-before-clipping", message, _ORDER_COST, node.lineno
                    )
            if re.search(_NOISE, clipped):
                message = "noise is added within what is clipped"
                findings.alarm(
                    "noise-before-clipping", message, _ORDER_COST, node.lineno
                )
        elif noise and re.search(r"\+|-|noise\w*\(", text):
            noised.add((scope, name))
        for norm in re.findall(_CLIPPING_NORM, text):
            paid = noise or not (re.search(_QUANTILE, norm) or quantiles & _words(norm))
            if not paid:
                message = "the clipping norm is a quantile of the clients' own values"
                findings.alarm("unpaid-clipping", message, _QUANTILE_COST, node.lineno)
        if not noise and re.search(_QUANTILE, text):
            quantiles.add(name)


def _words(text: str) -> set[str]:
    return {*re.findall(r"\w+", text)}


def client_promise(source: Source, findings: Findings, protected: str) -> None:
    """Add an alarm where a text promises privacy of clients, not of records."""
    line = source.line(_CLIENT)
    if line:
        message = f"the file promises privacy of clients; {protected}"
        findings.alarm("record-level", message, UNIT_COST, line)


def large_delta(
    options: Options, delta: float | None, findings: Findings, line: int = 0
) -> None:
    """Add an alarm where delta is at least one over the number of units."""
    if delta and options.population and delta >= 1 / options.population:
        message = f"delta {delta:g} is not below 1/n = {1 / options.population:.4g}"
        cost = "publishing one of the n in full would satisfy it"
        findings.alarm("delta", message, cost, line)


def new_in_rounds(source: Source, script: Script, call: Call, module: str) -> bool:
    """Whether a call runs in every round, for a model that is not made anew."""
    if not several(script, call.node):
        return False
    # the loop around the call, else its function
    blocks = [*script.blocks(call.node)]
    start = getattr((script.loops(call.node) or blocks[-1:])[0], "lineno", 0)
    before = source.text.splitlines()[start : call.line - 1]
    lines = [line for line in before if re.search(rf"\b{re.escape(module)}\b", line)]
    fresh = any(
        re.match(rf"\s*{re.escape(module)}\b[^=]*= *[\w.]+\(", line) for line in lines
    )
    return not fresh or any(re.search(_COPIED, line) for line in lines)
