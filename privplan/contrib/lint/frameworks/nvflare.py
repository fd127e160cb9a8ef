"""NVFlare: privacy filters of clients in job configurations and job scripts, and its log.

Source: nvflare 2.9, ``app_common/filters/svt_privacy.py`` and ``percentile_privacy.py``. One call
of ``SVTPrivacy`` costs epsilon for the selection and ``epsilon_release`` for the values; without
``epsilon_release`` the values cost ``n_upload * noise_var``, which grows with the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from privplan.contrib.lint import reading as checks
from privplan.contrib.lint.frameworks.opacus import read_script as read_opacus
from privplan.contrib.lint.reading import FRAMEWORKS, Claim, Options, Reading
from privplan.contrib.lint.script import (
    UNKNOWN,
    Call,
    Name,
    Script,
    Source,
    key,
    number,
    walk,
    whole,
)

_SVT = {"fraction": 0.1, "epsilon": 0.1, "noise_var": 0.1, "gamma": 1e-5, "tau": 1e-6}
_FILTERS = {"SVTPrivacy", "PercentilePrivacy"}
_RAW_MODELS = {"CrossSiteModelEval", "CrossSiteEval", "GlobalModelEval"}


@dataclass(frozen=True)
class _Filter:
    """A filter with its arguments and the tasks and direction that it is set for."""

    name: str
    arguments: dict[str, Any]
    tasks: tuple[str, ...]
    results: bool
    site: str
    line: int


def read(source: Source, options: Options) -> Reading:
    """Read a job script, a job configuration or a log."""
    if source.kind == "log":
        return _read_log(source, options)
    reading = Reading()
    if source.script is not None:
        return _read_script(source, source.script, reading, options)
    filters = list(_config_filters(source.data, reading))
    names = {_last(one.get("path") or one.get("name")) for _, one in walk(source.data)
             if isinstance(one, dict)}  # fmt: skip
    rounds = options.rounds or whole(source.setting("num_rounds"))
    _judge(reading, filters, rounds, bool(names & _RAW_MODELS))
    claimed = number(source.setting("target_epsilon", "epsilon_total", "privacy_budget"))
    reading.delta = reading.delta or number(source.setting("delta", "target_delta"))
    if claimed is not None:
        reading.claims.append(Claim(claimed, reading.delta, None, "the configuration"))
    return reading


def _read_script(source: Source, script: Script, reading: Reading, options: Options) -> Reading:
    checks.find(script, reading)
    filters = list(_script_filters(script, reading))
    rounds = options.rounds
    starts = script.named("execute", "simulator_run")
    if rounds is None and checks.starts_once(script, reading, starts):
        given = (one for one in script.calls if one.given("num_rounds"))
        rounds = next((whole(one.argument("num_rounds")) for one in given), None)
    raw = any(call.name in _RAW_MODELS or call.name == "add_cross_site_evaluation"
              for call in script.calls)  # fmt: skip
    _judge(reading, filters, rounds, raw)
    if not filters and script.imports("opacus"):
        found = read_opacus(source, script, options)
        found.alarms += [one for one in reading.alarms if one not in found.alarms]
        return found
    noiseless = filters and all(one.name == "PercentilePrivacy" for one in filters)
    if noiseless and checks.promises_clients(source.text):
        reading.alarm("record-level", "the file promises privacy of clients; its filter adds no "
                      "noise")  # fmt: skip
    return reading


def _script_filters(script: Script, reading: Reading) -> Iterator[_Filter]:
    for call in script.calls:
        for at, node in enumerate(call.node.args):
            value = script.value(node)
            path = value.path if isinstance(value, Call) else "nvflare."
            if at == 0 and call.given("filter_type") and not path.startswith("nvflare."):
                reading.changes.append(("noise multiplier", call.line, f"a filter {value.name}"))
            if at == 0 and isinstance(value, Call) and value.name in _FILTERS:
                kind = call.argument("filter_type", None, None)
                results = "data" not in _text(kind).lower() and "client_input" not in call.name
                if "server" in call.name:
                    text = "the filter runs on the server, which sees each update before it"
                    reading.conditions.append(text)
                tasks = call.argument("tasks", None, None)
                clients = call.argument("clients", None, None)
                sites = call.argument("target", 1, "all") if clients is None else str(clients)
                names = tuple(map(str, tasks)) if isinstance(tasks, list) else ("*",)
                named = dict(value.named)
                defaults = list(_SVT) if value.name == "SVTPrivacy" else ["percentile", "gamma"]
                named.update(zip(defaults, value.positional, strict=False))
                if not value.complete:
                    named = dict.fromkeys((*defaults, *named), UNKNOWN)
                site = sites if isinstance(sites, str) else "all"
                yield _Filter(value.name, named, names, results, site, value.line)


def _text(value: Any) -> str:
    return value.last if isinstance(value, Name) else str(value)


def _last(path: Any) -> str:
    return str(path or "").rpartition(".")[2]


def _config_filters(data: Any, reading: Reading) -> Iterator[_Filter]:
    """Filters of ``task_result_filters`` and ``task_data_filters``, wherever they are."""
    for name, value in walk(data):
        if name not in ("task_result_filters", "task_data_filters") or not isinstance(value, dict):
            continue
        tasks = tuple(map(str, value.get("tasks", ["*"])))
        for one in value.get("filters", []):
            path = str(one.get("path") or one.get("name"))
            found = _last(path)
            if "result" in name and "." in path and not path.startswith("nvflare."):
                reading.changes.append(("noise multiplier", 0, f"a filter {path}"))
            if found in _FILTERS:
                arguments = {key(k): v for k, v in (one.get("args") or {}).items()}
                yield _Filter(found, arguments, tasks, "result" in name, "all", 0)


def _judge(reading: Reading, filters: list[_Filter], rounds: int | None, raw: bool) -> None:
    for one in filters:
        if set(one.tasks) <= {"validate", "submit_model"}:
            text = f"{one.name} is set for {', '.join(one.tasks)}: no result of training meets it"
            reading.alarm("unfiltered", text, one.line)
        if not one.results:
            text = f"{one.name} filters what a client receives (task data), not what it sends: its "
            text += "update leaves unprotected"
            reading.alarm("unfiltered", text, one.line)
        if raw and "*" not in one.tasks and "submit_model" not in one.tasks:
            text = f"{one.name} is set for {', '.join(one.tasks)}; cross-site evaluation collects "
            text += "each site's own model (submit_model) and its metrics without a filter"
            reading.alarm("evaluation", text, one.line)
        if one.name == "PercentilePrivacy":
            _percentile(reading, one, rounds)
        else:
            _svt(reading, one, rounds)


_PROTECTS = "a site's update, from the server and everyone else"


def _percentile(reading: Reading, one: _Filter, rounds: int | None) -> None:
    text = "PercentilePrivacy truncates an update and adds no noise: no differential privacy"
    reading.alarm("no-noise", text, one.line)
    reading.mechanism(
        "client", _PROTECTS, "full", (0.0, 0.0), rounds=rounds, local=True, group=one.site
    )


def _svt(reading: Reading, one: _Filter, rounds: int | None) -> None:
    values = {**_SVT, **one.arguments}
    epsilon = number(values["epsilon"])
    release = number(values.get("epsilon_release"))
    if release is None and values.get("epsilon_release") is not UNKNOWN:
        noise = number(values["noise_var"])
        each = f"{noise:g} per uploaded parameter" if noise is not None else "noise_var each"
        text = f"epsilon {_shown(epsilon)} pays for the selection only: without epsilon_release "
        text += f"the values cost {each}, which for a tenth of 10,000 parameters is "
        text += f"{_shown(None if noise is None else 1000 * noise)} per round"
        reading.alarm("svt-release", text, one.line)
    total = None if epsilon is None or release is None else epsilon + release
    reading.conditions.append(
        "SVTPrivacy: a bound on selection and values of parameters that are not scalars, by its "
        "own analysis; delta is 0"
    )
    if total is None:
        reading.unknown("epsilon per round", "epsilon plus the cost of the uploaded values")
        return
    reading.mechanism(
        "client", _PROTECTS, "full", None, rounds=rounds, local=True, known_epsilon=total,
        group=one.site,
    )  # fmt: skip


def _shown(value: float | None) -> str:
    return "not determined" if value is None else f"{value:g}"


def _read_log(source: Source, options: Options) -> Reading:
    """``SVT privacy accountant: call epsilon x, cumulative epsilon y`` of each call."""
    reading = Reading()
    found = re.findall(r"call epsilon ([\d.e+-]+), cumulative epsilon ([\d.e+-]+)", source.text)
    calls = [(float(a), float(b.rstrip("."))) for a, b in found]
    if calls:
        total, last = sum(one for one, _ in calls), calls[-1][1]
        if total > last * (1 + 1e-4):
            text = f"the accountant was reset: its {len(calls)} calls cost {total:g} in all, and "
            reading.alarm("fresh-accountant", f"{text}the last cumulative epsilon is {last:g}")
        reading.claims.append(Claim(last, None, None, "the log"))
        reading.mechanism(
            "client", _PROTECTS, "full", None, rounds=1, local=True, known_epsilon=total
        )
    if "PercentilePrivacy" in source.text:
        reading.alarm("no-noise", "PercentilePrivacy adds no noise: no differential privacy")
    return reading


FRAMEWORKS.register("nvflare", read)
