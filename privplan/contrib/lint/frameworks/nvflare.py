"""NVFlare: privacy filters of clients in job configurations and job scripts.

Source: nvflare 2.9, ``app_common/filters/svt_privacy.py`` and ``percentile_privacy.py``. One call
of ``SVTPrivacy`` costs epsilon for the selection and ``epsilon_release`` for the values; without
``epsilon_release`` the values cost ``n_upload * noise_var``, which grows with the model.
"""

from __future__ import annotations

import ast
from typing import Any

from privplan.contrib.lint.reading import FRAMEWORKS, Options, Reading
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


def _read_script(source: Source, script: Script, options: Options, reading: Reading) -> None:
    filters = script.named(*_FILTERS)
    reading.shown = bool(filters)
    reading.unknown("a filter's epsilon is of one result of one site; what adds up is not shown")
    for call in script.named("to", "to_clients", "add_client_filter", "add_client_output_filter"):
        bound = LIST.bound(call)
        first = call.node.args[0] if call.node.args else None
        made = made_by(script.value(first), *_FILTERS)
        if made:
            given = {name: script.value(node) for name, node in LIST.bound(made).items()}
            kind = ast.dump(bound["filter_type"]) if "filter_type" in bound else ""
            tasks = script.value(bound.get("tasks"))
            _judge(made.name, given, tasks, "TASK_DATA" not in kind, made.line, reading)


def _judge(
    name: str, given: dict[str, Any], tasks: Any, results: bool, line: int,
    reading: Reading,
) -> None:  # fmt: skip
    """Say what is wrong with a filter, its tasks and its direction."""
    named = {*tasks} if isinstance(tasks, list) else {"*"}
    if not results or named <= {*_EVALUATION}:
        message = f"{name} does not filter the results of training"
        reading.alarm("unfiltered", message, "updates leave without protection", line)
    if name == "PercentilePrivacy":
        message = "PercentilePrivacy truncates an update"
        reading.alarm("no-noise", message, "no noise, so no differential privacy", line)
    elif given.get("epsilon_release") is None:
        message = "SVTPrivacy without epsilon_release: epsilon pays for the selection alone"
        cost = "noise_var for each value: 100 for a tenth of 10,000 parameters, in each round"
        reading.alarm("svt-release", message, cost, line)


def _read_configuration(source: Source, options: Options, reading: Reading) -> None:
    for key, section in walk(source.data):
        if key not in ("task_result_filters", "task_data_filters") or not isinstance(section, dict):
            continue
        for described in section.get("filters", ()):
            name = str(described.get("path") or described.get("name")).rpartition(".")[2]
            if name in _FILTERS:
                reading.shown = True
                given, tasks = described.get("args") or {}, section.get("tasks")
                _judge(name, given, tasks, "result" in key, source.line(name), reading)


FRAMEWORKS.register("nvflare", reader(LIST, _read_script, _read_configuration))
