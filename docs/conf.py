"""Sphinx configuration of the documentation site: `make docs` builds it into build/docs."""

import re
import sys
from pathlib import Path

import clearformer

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "clearformer"
author = "The clearformer authors"
copyright = author
release = version = clearformer.__version__

extensions = [
    "myst_nb",  # Markdown; pages with code cells are executed
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "api_reference",
    "command_reference",
    "mathml",
    "offline",
]
exclude_patterns = ["_ext"]
suppress_warnings = ["ref.python"]  # a class name in a signature that several modules define

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_inherit_docstrings = False
default_role = "code"

html_theme = "pydata_sphinx_theme"
html_title = "clearformer"
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
html_context = {"default_mode": "auto"}  # light or dark, as the browser prefers
html_theme_options = {
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 7,
    "footer_start": ["copyright"],
    "footer_end": [],
}


def optional_pages(app, docname, source) -> None:
    """Keep a toctree entry such as `book/index ?` only if there is such a page."""
    there = app.env.found_docs
    source[0] = re.sub(
        r"^(\S+) \?\n",
        lambda entry: f"{entry[1]}\n" if entry[1] in there else "",
        source[0],
        flags=re.M,
    )


def setup(app) -> None:
    app.connect("source-read", optional_pages)
