"""The explorer: traces of what a model computes, figures, and a local web page."""
