"""Sphinx configuration of the documentation site: `make docs` builds it into build/docs."""

import hashlib
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import torch

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
    "book_notebooks",
    "verify_figures",
]
exclude_patterns = ["_ext", "_generated"]
suppress_warnings = ["ref.python"]  # a class name in a signature that several modules define

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3


def source_digest() -> str:
    """A hash of the package's source, and of torch's version."""
    found = hashlib.sha256(torch.__version__.encode())
    for path in sorted(Path(clearformer.__file__).parent.rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


# jupyter-cache executes a page again when its code changes; a folder for each state of the source
# makes that "when its code or the library changes".
nb_execution_mode = "cache"
nb_execution_cache_path = str(
    Path(__file__).parents[1] / "build" / "notebooks-cache" / source_digest()
)
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_execution_timeout = 600
nb_merge_streams = True
for old in Path(nb_execution_cache_path).parent.glob("*"):
    if old.name != Path(nb_execution_cache_path).name:
        shutil.rmtree(old, ignore_errors=True)
# Exercises on the pages must not count as the reader's own progress, and the kernels need neither
# his IPython profile nor their note on TCP.
scratch = Path(tempfile.mkdtemp())
profile = scratch / "ipython" / "profile_default"
profile.mkdir(parents=True)
(profile / "ipython_kernel_config.py").write_text("get_config().IPKernelApp.log_level = 40\n")
os.environ |= {
    "XDG_DATA_HOME": str(scratch),
    "IPYTHONDIR": str(profile.parent),
    "OMP_NUM_THREADS": "1",
}

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_inherit_docstrings = False
default_role = "code"

html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["book.css"]
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
