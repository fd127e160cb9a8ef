"""Inputs of the tests of lint: rows of a table, public files, and other forms."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from privplan.contrib.lint.judge import lint
from privplan.contrib.lint.reading import Options

FOLDER = Path(__file__).parent


def table(name):
    """A file of this folder, by the parser in C, a tenth of the time of the other."""
    text = (FOLDER / name).read_text()
    return yaml.load(text, yaml.CSafeLoader)


TABLE = table("table.yaml")
PUBLIC = table("public.yaml")
DATA = table("configurations.yaml")


@dataclass(frozen=True)
class Input:
    """A text, the kind of its file, and what is given on the command line."""

    text: str
    kind: str = "py"
    framework: str = "opacus"
    population: int | None = 60_000
    rounds: int | None = None
    delta: float | None = None

    def written(self, folder):
        """The file in a folder."""
        path = folder / f"input.{self.kind}"
        text = _notebook(self.text) if self.kind == "ipynb" else self.text
        path.write_bytes(text.encode())
        return path

    def linted(self, folder):
        """The findings in the file."""
        path = self.written(folder)
        options = Options(self.population, self.rounds, self.delta)
        return lint(str(path), self.framework, options)

    def forms(self):
        """The same content in other forms, by name."""
        yield "byte order mark", replace(self, text="\ufeff" + self.text)
        yield "CRLF", replace(self, text=self.text.replace("\n", "\r\n"))
        if self.kind == "py":
            yield "notebook", replace(self, kind="ipynb")
            yield (
                "page",
                replace(
                    self, kind="md", text=f"# Title\n\n```python\n{self.text}\n```\n"
                ),
            )
        if self.kind == "ipynb":
            yield "script", replace(self, kind="py")
        if self.kind == "yaml":
            words = ((": true", ': "true"'), (": false", ': "false"'))
            quoted = self.text
            for plain, text in words:
                quoted = quoted.replace(plain, text)
            yield "quoted booleans", replace(self, text=quoted)
            yield (
                "JSON",
                replace(self, kind="json", text=json.dumps(yaml.safe_load(self.text))),
            )


def _notebook(text):
    """The text in two code cells, between which a page stands."""
    lines = text.removeprefix("\ufeff").splitlines(keepends=True)
    # a cell ends where a line at the margin begins
    margin = [place for place, line in enumerate(lines) if line[:1].isalpha()]
    middle = margin[len(margin) // 2] if margin else 0
    depth = "".join(lines[:middle]).count("(") - "".join(lines[:middle]).count(")")
    middle = middle if depth == 0 else 0
    cells = [
        {"cell_type": "code", "source": lines[:middle]},
        {"cell_type": "markdown", "source": ["words"]},
        {"cell_type": "code", "source": "".join(lines[middle:])},
    ]
    begin = "\ufeff" if text.startswith("\ufeff") else ""
    return begin + json.dumps({"cells": cells, "metadata": {}, "nbformat": 4})


def row_of(name):
    """The input of a row of the table."""
    row = TABLE["rows"][name]
    text = "\n".join([TABLE["opacus"][part] for part in row.get("parts", ())])
    if "replace" in row:
        assert row["replace"][0] in text
        text = text.replace(*row["replace"])
    text += "\n" + row.get("text", "")
    framework = row.get("of", "opacus")
    population = 60_000 if framework == "opacus" else 1000
    return Input(text, row.get("kind", "py"), framework, population, row.get("rounds"))


def public_of(name):
    """A public-looking input."""
    row = PUBLIC[name]
    population = row.get("population", 60_000)
    return Input(row["text"], row.get("kind", "py"), row["of"], population)


def configuration_of(name):
    """A documented configuration, with the edits of its row."""
    framework = name.partition(" ")[0]
    text = DATA["bases"][framework]
    for old, new in DATA["rows"][name].get("edits", ()):
        assert old in text
        text = text.replace(old, new)
    population = 60_000 if framework == "opacus" else 1000
    return Input(text, "py", framework, population, delta=1e-5)


def file_of(case):
    """A file of the corpus."""
    kind = case.path.suffix.removeprefix(".")
    return Input(case.path.read_text(), kind, case.framework, case.population)
