"""A trained model with its config and tokenizer, and a method for each thing that it can do.

base holds the state; generating, predicting, translating, inspecting and writing each add the
methods of one kind of use; model is the class with all of them, and loading opens one.
"""

from clearformer.model.loading import load, merge
from clearformer.model.model import Model

__all__ = ["Model", "load", "merge"]
