"""clearformer: transformers made clear.

    from clearformer.builder import build
    from clearformer.families import gpt2

    model = build(gpt2("small"))

Nothing is imported here, so that the command line answers at once.
"""

__version__ = "0.2.0"
