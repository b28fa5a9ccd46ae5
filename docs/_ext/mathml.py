"""Formulas as MathML, which browsers draw without a script or a network."""

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.application import Sphinx


def visit_inline(self, node: nodes.math) -> None:
    self.body.append(latex2mathml.tex2mathml(node.astext()))
    raise nodes.SkipNode


def visit_block(self, node: nodes.math_block) -> None:
    self.body.append(
        f'<div class="math">{latex2mathml.tex2mathml(node.astext(), as_block=True)}</div>'
    )
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True}
