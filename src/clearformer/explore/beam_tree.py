"""The beam search of a model on a text, as a tree.

from clearformer.interpretability import beam_tree

tree = beam_tree(model, "twenty-one", beam=4)
tree.nodes, tree.hypotheses
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch

from clearformer import limits
from clearformer.arguments import require_int
from clearformer.config import Seq2SeqConfig
from clearformer.explore import token_display
from clearformer.explore.inputs import input_ids, require_text_length
from clearformer.explore.library import LoadedModel
from clearformer.explore.limits import Limits
from clearformer.explore.requests import BeamsRequest
from clearformer.explore.traced_model import TracedModel, as_traced_model, encode_source
from clearformer.generate.beam import Beam
from clearformer.generate.beam_generate import PromptBeams
from clearformer.generate.beam_tree import BeamTree, search_tree
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.translate import beam_state
from clearformer.http_server.errors import wrong_kind
from clearformer.inference.modes import inference_mode


def beam_tree(
    model: object,
    text: str,
    *,
    beam: int = 4,
    length_penalty: float = 1.0,
    max_tokens: int = 20,
) -> BeamTree:
    """Search for the most likely continuation or translation, and keep every step.

    Args:
        model (Model or nn.Module): A model that generates or translates.
        text (str): The prompt, or what is translated.
        beam (int): Hypotheses that are followed, at least 2. Default: 4.
        length_penalty (float): Scores are divided by the length to this power. Default: 1.0.
        max_tokens (int): The longest hypothesis. Default: 20.

    Returns:
        BeamTree: `nodes` and `hypotheses`, those of `generate` and `translate`.
    """
    require_int("beam", beam, 2, limits.MAX_BEAM)
    require_int("max_tokens", max_tokens, 1)
    traced = as_traced_model(model)
    config = traced.config
    if config is None or traced.tokenizer is None:
        raise ValueError("a beam search needs a tokenizer and a config: open a Model")
    settings = Beam(width=beam, length_penalty=length_penalty)
    if len(traced.module.stacks) == 2:
        return _translation(traced, text, settings, max_tokens)
    writer = LanguageModel(traced.transformer, config, traced.generation, traced.tokenizer)
    ids = writer.encode(text)
    longest = config.position.max_length(config.length)
    room = max_tokens if longest is None else min(max_tokens, longest - len(ids) + 1)
    if room < 1:
        raise ValueError(
            f"the prompt has {len(ids)} tokens, but {config.name} reads at most {longest}: "
            f"shorten it"
        )
    with inference_mode(writer.module):
        return search_tree(
            PromptBeams(writer, [ids], room), settings, eos_ids=writer.eos_ids(), max_tokens=room
        )


def _translation(model: TracedModel, text: str, settings: Beam, max_tokens: int) -> BeamTree:
    config, generation = model.config, model.generation
    assert isinstance(config, Seq2SeqConfig)
    source = encode_source(model, text)
    start_id, end_id = generation.require_target_ids(config.name)
    with inference_mode(model.seq2seq) as device:
        tokens = torch.tensor([source], device=device)
        state = beam_state(model.seq2seq, config, start_id, tokens, None, settings.width)
        return search_tree(
            state, settings, eos_ids=(end_id,), max_tokens=min(max_tokens, config.length),
            defaults=generation,
        )  # fmt: skip


def view(loaded: LoadedModel, request: BeamsRequest, limits: Limits) -> dict[str, Any]:
    """The tree as JSON: each node with its token as the page displays it."""
    require_text_length(request.text, limits)
    input_ids(loaded, request.text, None, limits)  # its length
    try:
        tree = beam_tree(
            loaded.model, request.text, beam=request.beam, max_tokens=request.max_tokens,
            length_penalty=request.length_penalty,
        )  # fmt: skip
    except ValueError as problem:
        raise wrong_kind(str(problem)) from None
    shown = token_display.vocabulary_items(
        loaded.model, [node.token for node in tree.nodes if node.token is not None]
    )
    displays = ["", *(item["display"] for item in shown)]
    tokenizer = loaded.model.tokenizer
    assert tokenizer is not None
    return {
        "nodes": [
            {**asdict(node), "display": display}
            for node, display in zip(tree.nodes, displays, strict=True)
        ],
        "hypotheses": [
            {"text": tokenizer.decode(each.tokens), "score": each.score, "ended": each.ended}
            for each in tree.hypotheses
        ],
    }
