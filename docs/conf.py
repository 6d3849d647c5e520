"""The site: Sphinx, MyST, Furo. Nothing is fetched; a warning is an error (`make docs`)."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).with_name("_ext"))]

project = "kvgen"
author = "The kvgen authors"
copyright = author

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_click", "from_code"]
html_theme = "furo"
html_title = "kvgen"
html_show_sourcelink = False
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["kvgen.css"]
smartquotes = False  # `--check` keeps its hyphens

exclude_patterns = ["_ext", "_static"]
myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]

default_role = "code"  # docstrings write `names` as Markdown does
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "inherited-members": "object"}
python_use_unqualified_type_names = True
