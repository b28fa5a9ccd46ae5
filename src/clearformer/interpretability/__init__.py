"""Tools of interpretability over traces and edits, and `watch` for modules of anybody.

from clearformer.interpretability import ablate, patch

ablate(model, "The cat sat on the")              # which heads and MLPs matter
patch(model, clean, corrupted, right=" Mary", wrong=" John").values
"""

from clearformer.explore.beam_tree import beam_tree
from clearformer.explore.embedding_map import Axes, EmbeddingMap, embedding_map
from clearformer.generate.beam_tree import BeamTree
from clearformer.interpretability.ablation import Ablation, ablate
from clearformer.interpretability.attribution import LogitAttribution, direct_logit_attribution
from clearformer.interpretability.head_scores import HeadScores, head_scores, previous_token_scores
from clearformer.interpretability.metrics import logit_difference, text_loss
from clearformer.interpretability.patching import PatchGrid, patch
from clearformer.interpretability.probes import Probes, linear_probes
from clearformer.interpretability.rollout import attention_rollout
from clearformer.interpretability.watch import Watch, WatchedAttention, watch

__all__ = [
    "Ablation",
    "Axes",
    "BeamTree",
    "EmbeddingMap",
    "HeadScores",
    "LogitAttribution",
    "PatchGrid",
    "Probes",
    "Watch",
    "WatchedAttention",
    "ablate",
    "attention_rollout",
    "beam_tree",
    "direct_logit_attribution",
    "embedding_map",
    "head_scores",
    "linear_probes",
    "logit_difference",
    "patch",
    "previous_token_scores",
    "text_loss",
    "watch",
]
