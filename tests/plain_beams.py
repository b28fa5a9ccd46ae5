"""Beams of a decoder-only model as rows of a cache: the reference form for tests."""

import torch

from clearformer.inference.beam_state import BeamState


class PromptRows(BeamState):
    """Continuations of prompts (B, T), padded on the left where `attention_mask` is False."""

    def __init__(
        self,
        model,
        config,
        prompt,
        attention_mask=None,
    ):
        super().__init__(model, config, len(prompt))
        self.model = model
        self.prompt = prompt
        self.attention_mask = attention_mask

    def first(self):
        return self._logits(self.prompt)

    def step(self, tokens):
        if self.attention_mask is not None:
            self.attention_mask = torch.cat(
                (self.attention_mask, self.attention_mask.new_ones(len(self.attention_mask), 1)),
                dim=1,
            )
        return super().step(tokens)

    def copy(self, sources, targets):
        super().copy(sources, targets)
        if self.attention_mask is not None:
            self.attention_mask = self.attention_mask.index_copy(
                0, targets, self.attention_mask[sources]
            )

    def _select_rows(self, rows):
        super()._select_rows(rows)
        self.attention_mask = None if self.attention_mask is None else self.attention_mask[rows]

    def _hidden(self, tokens):
        return self.model.hidden(tokens, self.attention_mask, caches=self.memory)
