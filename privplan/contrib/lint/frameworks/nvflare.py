"""NVFlare: privacy filters of clients in job configurations and job scripts.

Source: nvflare 2.9, ``app_common/filters/svt_privacy.py`` and
``percentile_privacy.py``. One call of ``SVTPrivacy`` costs epsilon for the selection
and ``epsilon_release`` for the values; without ``epsilon_release`` the values cost
``n_upload * noise_var``, which grows with the model.
"""

from __future__ import annotations

import ast
from typing import Any

from privplan.contrib.lint.reading import FRAMEWORKS, Findings, Options
from privplan.contrib.lint.script import Script, made_by
from privplan.contrib.lint.source import Source, walk
from privplan.contrib.lint.understood import Understood, reader

_FILTERS = ("SVTPrivacy", "PercentilePrivacy")
_EVALUATION = ("validate", "submit_model")
LIST = Understood(
    package="nvflare",
    calls={
        "SVTPrivacy": "fraction epsilon noise_var gamma tau data_kinds replace epsilon_release",
        "PercentilePrivacy": "percentile gamma data_kinds",
        "FedJob": "name",
        "FedAvg": "num_clients num_rounds",
        "to": "obj target | tasks filter_type",
        "to_clients": "obj | tasks filter_type",
        "to_server": "obj",
        "simulator_run": "workspace n_clients",
    },
    names="FilterType TASK_RESULT TASK_DATA",
    attributes="TASK_RESULT",
    keys="format_version num_rounds executors executor tasks task_result_filters filters "
    "task_data_filters path name args fraction epsilon noise_var gamma tau epsilon_release",
)


def _read_script(
    source: Source, script: Script, options: Options, findings: Findings
) -> None:
    filters = script.named(*_FILTERS)
    findings.shown = bool(filters)
    findings.unknown(
        "a filter's epsilon is of one result of one site; what adds up is not shown"
    )
    for call in script.named("to", "to_clients"):
        described = made_by(LIST.argument(script, call, "obj"), *_FILTERS)
        if described:
            released = LIST.argument(script, described, "epsilon_release", None)
            tasks = LIST.argument(script, call, "tasks")
            results = "TASK_DATA" not in ast.dump(call.node)
            _judge(described.name, released, tasks, results, described.line, findings)


def _judge(
    name: str, released: Any, tasks: Any, results: bool, line: int, findings: Findings
) -> None:
    """Say what is wrong with a filter, its tasks and its direction."""
    elsewhere = isinstance(tasks, list) and all(task in _EVALUATION for task in tasks)
    if not results or elsewhere:
        message = f"{name} does not filter the results of training"
        cost = "updates leave without protection, unless another filter meets them"
        findings.alarm("unfiltered", message, cost, line, certain=False)
    if name == "PercentilePrivacy":
        message = "PercentilePrivacy truncates an update"
        cost = "no differential privacy, unless another filter adds noise"
        findings.alarm("no-noise", message, cost, line, certain=False)
    elif released is None:
        message = (
            "SVTPrivacy without epsilon_release: epsilon pays for the selection alone"
        )
        cost = "noise_var for each value: 100 for a tenth of 10,000 parameters, in each round"
        findings.alarm("svt-release", message, cost, line)


def _read_configuration(source: Source, options: Options, findings: Findings) -> None:
    sections = [pair for pair in walk(source.data) if pair[0].endswith("_filters")]
    for key, section in sections:
        for _, described in walk(section):
            about = described if isinstance(described, dict) else {}
            name = str(about.get("path") or about.get("name")).rpartition(".")[2]
            if name in _FILTERS:
                findings.shown = True
                released = dict(walk(about)).get("epsilon_release")
                results = key == "task_result_filters"
                tasks = dict(walk(section)).get("tasks")
                _judge(name, released, tasks, results, source.line(name), findings)


FRAMEWORKS.register("nvflare", reader(LIST, _read_script, _read_configuration))
