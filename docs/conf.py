"""Settings of the documentation site: ``make docs`` builds it, warnings are errors."""

import sys
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any, get_type_hints

sys.path.insert(0, str(Path(__file__).parent))

import generate
from sphinx.util.typing import stringify_annotation

from privplan import Plan, Spec
from privplan.cli import main

project = "privplan"
author = "privplan contributors"
copyright = "privplan contributors, Apache License 2.0"
release = version = package_version("privplan")
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_click",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "plugin-template"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"privplan {version}"
html_static_path: list[str] = []
autodoc_typehints = "description"
smartquotes = False  # two hyphens of an option stay two
autodoc_member_order = "bysource"
napoleon_google_docstring = True
copybutton_exclude = ".linenos, .gp, .go"

NARROW = "td code.literal { white-space: normal; overflow-wrap: anywhere; }"
"""Code in tables is broken where a narrow screen has no room for it."""

generate.write(Path(__file__).parent)
generate.explain_options(main)


def plain_types(app: Any, *_: Any) -> None:
    """Types of a spec's fields are shown without what checks their values, those of a plan once."""
    known = app.env.current_document.autodoc_annotations
    known.pop(f"{Plan.__module__}.Plan", None)
    shown = known.get(f"{Spec.__module__}.Spec", {})
    hints = get_type_hints(Spec).items()
    shown |= {
        name: stringify_annotation(hint, "smart")
        for name, hint in hints
        if name in shown
    }


def short_signature(
    app: Any, kind: str, name: str, found: Any, *_: Any
) -> tuple[str, str] | None:
    """A spec and a plan are shown without the fields that are described below them."""
    return ("(...)", "") if found in (Spec, Plan) else None


def meanings(
    app: Any, kind: str, name: str, found: Any, options: Any, lines: list[str]
) -> None:
    """Adds to a spec what its fields mean."""
    if found is Spec:
        lines += [
            f":param {one}: {at.description}" for one, at in Spec.model_fields.items()
        ]


def accessible(app: Any, error: Exception | None) -> None:
    """Headings of the navigation get their level; code and tables scroll by keys."""
    for page in Path(app.outdir).rglob("*.html"):
        text = page.read_text(encoding="utf-8").replace("<pre>", '<pre tabindex="0">')
        text = text.replace(
            '<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'
        )
        text = text.replace('role="heading">', 'role="heading" aria-level="2">')
        text = text.replace("</head>", f"<style>{NARROW}</style></head>", 1)
        page.write_text(text, encoding="utf-8")


def setup(app: Any) -> None:
    """Links of the pages to files of the repository become links of the site."""
    app.connect(
        "source-read",
        lambda app, name, text: text.insert(0, generate.on_site(text.pop())),
    )
    app.connect("object-description-transform", plain_types, priority=400)
    app.connect("autodoc-process-signature", short_signature)
    app.connect("autodoc-process-docstring", meanings)
    app.connect("sphinx-click-process-arguments", generate.explain_arguments)
    app.connect("sphinx-click-process-epilog", generate.example_as_code)
    app.connect("build-finished", accessible)
