"""Settings of the documentation site: ``make docs`` builds it, warnings are errors."""

import sys
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any, get_type_hints

sys.path.insert(0, str(Path(__file__).parent))

import generate
from sphinx.util.typing import stringify_annotation

from privplan import Spec

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

generate.write(Path(__file__).parent)


def plain_types(app: Any, *_: Any) -> None:
    """Types of a spec's fields are shown without what checks their values."""
    shown = app.env.current_document.autodoc_annotations.get(f"{Spec.__module__}.Spec", {})
    hints = get_type_hints(Spec).items()
    shown |= {name: stringify_annotation(hint, "smart") for name, hint in hints if name in shown}


def accessible(app: Any, error: Exception | None) -> None:
    """Headings of the navigation get their level; code that scrolls can be reached by keys."""
    for page in Path(app.outdir).rglob("*.html"):
        text = page.read_text(encoding="utf-8").replace("<pre>", '<pre tabindex="0">')
        text = text.replace('role="heading">', 'role="heading" aria-level="2">')
        page.write_text(text, encoding="utf-8")


def setup(app: Any) -> None:
    """Links of the pages to files of the repository become links of the site."""
    app.connect("source-read", lambda app, name, text: text.insert(0, generate.on_site(text.pop())))
    app.connect("object-description-transform", plain_types, priority=400)
    app.connect("build-finished", accessible)
