"""The runs of the table, in several processes, with a journal from which it is resumed."""

import json
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from multiprocessing import get_context
from typing import Any

import tests.sabotage as collection
from tests.sabotage.bench import Finding, honest, tried
from tests.sabotage.table import honest_row

Result = dict[str, Any]
"""Fields of a finding but for its fault; of an honest run ``kept`` and its ``row``."""


@dataclass(frozen=True)
class Task:
    """One run, with its verdict."""

    name: str  # of the fault, or of the algorithm of an honest run
    seed: int  # seed of the run
    sampling: str = ""  # sampling law of an honest run; empty for a fault
    canaries: int = 0  # canaries a group in a second run with the fault
    replay: bool = False  # whether the run is executed again

    def run(self):
        """Execute the run and judge it."""
        if self.sampling:
            verdict = honest(self.name, self.sampling, self.seed)
            return {"kept": verdict.kept, "row": honest_row(self.seed, verdict)}
        [fault] = [one for one in collection.FAULTS if one.name == self.name]
        found = tried(fault, self.seed, self.canaries, replay=self.replay)
        names = [one.name for one in fields(Finding) if one.name != "fault"]
        return {name: getattr(found, name) for name in names}

    def finding(self, result):
        """The finding of a fault, from its fields."""
        [fault] = [one for one in collection.FAULTS if one.name == self.name]
        return Finding(fault, **result)


def results(tasks, jobs, journal, report):
    """Results of tasks in their order."""
    done: dict[Task, Result] = dict(_read(journal))
    left = [task for task in tasks if task not in done]
    report(len(tasks) - len(left), len(tasks))
    for ended, (task, result) in enumerate(_executed(left, jobs), start=1):
        done[task] = result
        report(len(tasks) - len(left) + ended, len(tasks))
        if journal is not None:
            with journal.open("a") as file:
                file.write(json.dumps({"task": asdict(task), "result": result}) + "\n")
    return [done[task] for task in tasks]


def _read(journal):
    """The results of a journal; a last line that was cut off is left out."""
    if journal is None or not journal.exists():
        return
    for line in journal.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            entry = json.loads(line)
            yield Task(**entry["task"]), entry["result"]


def _executed(tasks, jobs):
    """Tasks and their results, as they end."""
    if jobs == 1:
        yield from ((task, task.run()) for task in tasks)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        running = {pool.submit(task.run): task for task in tasks}
        for ended in as_completed(running):
            yield running[ended], ended.result()
