# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # clearformer in ten minutes
#
# Train a small language model on Python's own documentation, generate text with it, look inside
# it, and train a text classifier. Everything runs on a laptop's CPU, without a network.
#
# The source of this notebook is `quickstart.py`; `make notebooks` builds and executes it.

# %%
# %matplotlib inline
import tempfile
from pathlib import Path

import clearformer as cf

runs = Path(tempfile.mkdtemp())  # a folder of your own keeps the runs

# %% [markdown]
# ## Train
#
# `cf.train` takes what `clearformer train` takes, by the same names. Interrupting the kernel saves
# the run and returns the model; `resume=True` continues it. `data` is a corpus by name, a file of
# your own, or a list of texts.

# %%
model = cf.train(
    "modern-tiny",
    data="python-docs",
    steps=120,
    layers=2,
    width=64,
    length=64,
    out=runs / "docs",
)
model

# %% [markdown]
# Every step and every evaluation is in the run's metrics.

# %%
rows = model.metrics()
rows[-2]

# %%
from clearformer.explore.figures import curve

curve(rows, "bits_per_byte", model.config.name)

# %% [markdown]
# ## Generate
#
# A string gives a string, a list gives a list. The same seed gives the same text.

# %%
print("The " + model.generate("The ", max_tokens=120, temperature=0.5, seed=1))

# %%
print("The ", end="")
for token in model.stream("The ", max_tokens=20, temperature=0.5, seed=1):
    print(token.text, end="")

# %% [markdown]
# ## Look inside
#
# A trace holds every stage of a forward pass. It displays itself as the page of
# `clearformer explore`: choose a layer, a head and a token.

# %%
trace = model.trace("The value of the expression")
trace

# %% [markdown]
# The numbers are tensors: the attention weights of one head, one row for each query.

# %%
weights = trace.get("weights", layer=1, head=0)
weights.shape, weights.sum(dim=-1)

# %%
trace.picture(layer=1, head=0)

# %% [markdown]
# ## Classify, with scikit-learn
#
# `TextClassifier` is an estimator: it works in pipelines, cross-validation and grid search.

# %%
from sklearn.model_selection import cross_val_score

from clearformer.sklearn import TextClassifier

good, bad = ("lovely", "great", "charming"), ("dull", "awful", "boring")
texts = [f"a {word} film, part {i}" for i in range(8) for word in (*good, *bad)]
labels = [text.split()[1] in good for text in texts]

small = {"width": 32, "length": 16, "buckets": 256}
classifier = TextClassifier(epochs=12, batch_size=8, settings=small, random_state=0)
cross_val_score(classifier, texts, labels, cv=3)

# %% [markdown]
# ## Plain PyTorch
#
# `model.module` is an `nn.Module`: write a training loop of your own, register hooks, compile it.

# %%
import torch

tokens = torch.tensor([list(b"The value of the expression")])  # this tokenizer's ids are bytes
logits = model.module(tokens)
logits.shape
