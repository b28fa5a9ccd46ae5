"""The page of each bug: what it does to training, the wrong line and the right one, how it shows.

`docs/verify.md` holds the same pages; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from clearformer.did_you_mean import nearest
from clearformer.verification.entries import ENTRIES


@dataclass(frozen=True)
class Page:
    """The documentation of one bug."""

    does: str
    wrong: str
    right: str
    shows: str


# fmt: off
PAGES = {
    "future-leak": Page(
        "The model is told the answer. The training loss falls far below what is possible, evaluation looks excellent, and generated text is poor, because there is no future to look at.",
        "scores = scores.masked_fill(torch.ones(T, T).triu(2).bool(), -inf)",
        "scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -inf)",
        "Output i changes when only an input after i is changed. Checked in double precision for every pair of positions, at several lengths."),
    "future-leak-through-norm": Page(
        "Mean and variance over the time axis contain later tokens. The leak is small and is learned slowly, so the loss is a little too good for no visible reason.",
        "x = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)",
        "x = F.layer_norm(x, (E,))",
        "The first operation that carries a change backwards in time is a norm, or a mean beside a variance."),
    "future-leak-through-pooling": Page(
        "A mean, sum or maximum over all positions is added to each position, so each position knows something about the whole text.",
        "x = x + x.mean(dim=1, keepdim=True)",
        "x = x + x.cumsum(1) / torch.arange(1, T + 1)[:, None]",
        "The first operation that carries a change backwards in time is a reduction over time."),
    "future-leak-through-batch": Page(
        "BatchNorm takes its statistics over the batch and over time. In training each position knows a little about all others; in eval mode it does not, and the figures of both modes disagree.",
        "self.norm = nn.BatchNorm1d(E)",
        "self.norm = nn.LayerNorm(E)",
        "In train mode an output changes with later inputs and with other rows; in eval mode it does not."),
    "batch-coupling": Page(
        "A prediction depends on which other texts happen to be in the batch. Common cause: a module with batch_first=False that is given (B, T, E).",
        "nn.MultiheadAttention(E, H)(x, x, x)  # x is (B, T, E)",
        "nn.MultiheadAttention(E, H, batch_first=True)(x, x, x)",
        "Rows change when only another row of the batch is replaced."),
    "reach-too-short": Page(
        "Context that the model claims is never used: long dependencies cannot be learned. A mask that hides the diagonal makes a position blind to itself.",
        "mask = torch.ones(T, T).tril(-1)",
        "mask = torch.ones(T, T).tril()",
        "An output does not change with an input that it may see."),
    "window-off-by-one": Page(
        "The window is one key too wide or too narrow. Weights that were trained with another implementation give slightly other results, and a rolling cache of the stated size loses a key.",
        "near = i - j <= window",
        "near = i - j < window",
        "The last query of a longer text sees window + 1 or window - 1 keys, itself included."),
    "padding-leak-left": Page(
        "The result of a text depends on what fills the padding on its left. Batched generation differs from generation one by one.",
        "scores = scores + causal_mask",
        "scores = scores + causal_mask + padding_mask[:, None, None, :]",
        "Outputs of real tokens change with the content of masked positions on the left."),
    "padding-leak-right": Page(
        "The result of a text depends on how long the longest text of its batch is.",
        "pooled = hidden.mean(dim=1)",
        "pooled = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)",
        "Outputs of real tokens change with the content of masked positions on the right."),
    "padding-moves-positions": Page(
        "With padding on the left real tokens start at position 3 or 7 instead of 0. The model was never trained on that.",
        "position_ids = torch.arange(T)",
        "position_ids = (attention_mask.cumsum(1) - 1).clamp(min=0)",
        "A left-padded row gives other outputs than the same row alone."),
    "mask-ignored": Page(
        "A mask is accepted and has no effect: padding is attended to in every batch.",
        "def forward(self, x, mask=None): return self.attention(x)",
        "def forward(self, x, mask=None): return self.attention(x, mask)",
        "Outputs are the same with a mask that hides a position and without it."),
    "mask-inverted": Page(
        "What should be hidden is seen and the other way round. torch itself has both conventions: True = hidden in nn.MultiheadAttention, True = seen in scaled_dot_product_attention.",
        "F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(T, T).triu(1).bool())",
        "F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(T, T).tril().bool())",
        "Queries see only later keys, or the mask works with its meaning reversed."),
    "mask-broadcast-wrong": Page(
        "Heads are folded into the batch and the mask is repeated in the other order, so rows are masked with the padding of other rows.",
        "mask = mask.repeat(H, 1)[:, None]  # scores are (B*H, T, T)",
        "mask = mask.repeat_interleave(H, dim=0)[:, None]",
        "The mask of one row changes the outputs of another."),
    "mask-lost-on-slow-path": Page(
        "A mask is honoured on one path only: dropped with dropout, with returned weights, or when a padding mask is given as well. Often the path of training is the wrong one.",
        "mask = padding_mask if padding_mask is not None else causal_mask",
        "mask = causal_mask & padding_mask",
        "In train mode, with weights returned or with a padding mask the model sees what it does not see in the plain call."),
    "finite-mask": Page(
        "Hidden scores get a number such as -100 or -10000. At first the weight is zero. A model that gains by looking ahead learns scores that beat it. A mask that multiplies scores by 0 hides nothing at all.",
        "scores = scores.masked_fill(mask, -1e4)",
        'scores = scores.masked_fill(mask, float("-inf"))',
        "The operation before the softmax fills hidden scores with a number above -30000."),
    "nan-row": Page(
        "The softmax over a row of -inf is NaN. It spreads through the next layer to every token of the row and through the gradient to every weight.",
        'weights = scores.masked_fill(mask, float("-inf")).softmax(-1)',
        "weights = weights.masked_fill(mask.all(-1, keepdim=True), 0.0)",
        "A left-padded row, or the first position, gives NaN."),
    "causal-aligned-top-left": Page(
        "With a cache there are more keys than queries. A triangle that starts at the first key hides most of the text from the new tokens.",
        "mask = torch.ones(Q, K).tril()",
        "mask = torch.ones(Q, K).tril(diagonal=K - Q)",
        "Two chunks with a cache give other outputs than the whole text; query 0 of the second chunk sees key 0 only."),
    "scale-missing": Page(
        "Scores grow with the width of a head, so the softmax is nearly one-hot from the start and its gradient vanishes. Training is slow or gets stuck; wide heads suffer most.",
        "weights = (q @ k.transpose(-2, -1)).softmax(-1)",
        "weights = (q @ k.transpose(-2, -1) / math.sqrt(D)).softmax(-1)",
        "No factor stands between the product of queries and keys and the softmax. Reported as info where the code states a scale of 1."),
    "scale-by-model-width": Page(
        "Scores are too small by sqrt(H), so the weights are flatter than meant and heads average instead of choosing.",
        "scores = q @ k.transpose(-2, -1) / math.sqrt(E)",
        "scores = q @ k.transpose(-2, -1) / math.sqrt(E // H)",
        "The factor of the scores is 1 / sqrt(model width)."),
    "scale-applied-twice": Page(
        "Scores are divided by D, not by its square root: attention is nearly uniform at the start.",
        "q = q / math.sqrt(D); y = F.scaled_dot_product_attention(q, k, v)",
        "y = F.scaled_dot_product_attention(q, k, v)",
        "The product of all factors is 1 / D."),
    "scale-inverted": Page(
        "Scores are D times too large: the softmax is one-hot and has no gradient.",
        "scores = q @ k.transpose(-2, -1) * math.sqrt(D)",
        "scores = q @ k.transpose(-2, -1) / math.sqrt(D)",
        "The factor of the scores is sqrt(D)."),
    "softmax-axis": Page(
        "Weights sum to one over queries, heads or the batch. Outputs are no averages, and in a causal model the normaliser carries later tokens back.",
        "weights = scores.softmax(dim=1)",
        "weights = scores.softmax(dim=-1)",
        "The weights of a query do not sum to one over its keys."),
    "softmax-before-mask": Page(
        "The normaliser still contains the hidden scores, so a position learns how much it would have looked ahead, and weights sum to less than one.",
        "weights = scores.softmax(-1) * mask",
        "weights = scores.masked_fill(~mask, -inf).softmax(-1)",
        "Weights are set to zero between the softmax and the product with the values, and do not sum to one."),
    "heads-mixed-by-view": Page(
        "A view without a transpose cuts the sequence instead of the width: a head is made of pieces of several positions. The model trains, and is worse.",
        "q = q.view(B, H, T, D)",
        "q = q.view(B, T, H, D).transpose(1, 2)",
        "After the view a position does not hold the numbers that it held before."),
    "heads-slice-time": Page(
        "Heads are slices of the time axis, so each head sees a part of the text instead of a part of the width. The second seed's Fig. 4 has it.",
        "q[:, start:start + D] @ k[:, start:start + D].transpose(-2, -1)",
        "q[:, :, start:start + D] @ k[:, :, start:start + D].transpose(-2, -1)",
        "Queries and keys of a product are slices of the time axis."),
    "qk-swapped-cross": Page(
        "The source asks and the target answers. Usually shapes forbid it; with equal lengths or a pooled output nothing does.",
        "self.cross(memory, x, x)",
        "self.cross(x, memory, memory)",
        "Scores of cross-attention have the shape (source, target)."),
    "value-projection-shared": Page(
        "Keys serve as values: what is looked for and what is given cannot differ, and a matrix is trained by nothing.",
        "v = self.key(x)",
        "v = self.value(x)",
        "Values equal keys or queries while a projection gets no gradient."),
    "key-projection-shared": Page(
        "Queries serve as keys: each position attends to itself most, and scores are symmetric.",
        "k = self.query(x)",
        "k = self.key(x)",
        "Keys equal queries while a projection gets no gradient."),
    "output-projection-missing": Page(
        "Heads are concatenated and not mixed. With a feed-forward layer right after this is possible, and rare.",
        "return merged",
        "return self.output(merged)",
        "No projection follows the product with the values."),
    "residual-missing": Page(
        "A sublayer replaces the stream. Deep models do not train: gradients must pass every sublayer.",
        "x = self.attn(self.norm(x))",
        "x = x + self.attn(self.norm(x))",
        "With the output projection of this sublayer set to zero, the model's output no longer depends on its input."),
    "norm-misplaced": Page(
        "Pre-norm and post-norm want other learning rates and warm-ups. A post-norm block with the settings of a pre-norm one often diverges.",
        "x = self.norm(x + self.attn(x))  # norm_first=True",
        "x = x + self.attn(self.norm(x))",
        "The block's flag says one thing and its last operation another."),
    "norm-over-time": Page(
        "Statistics over positions make a text depend on its length and its padding, and tie the model to one length.",
        "nn.LayerNorm((T, E))",
        "nn.LayerNorm(E)",
        "The shape of a norm contains the length, or a variance is taken over the time axis."),
    "gelu-variant": Page(
        "The exact GELU and its tanh approximation differ by up to 0.0005. Pretrained weights give slightly other logits.",
        "nn.GELU()  # the config says gelu_new",
        'nn.GELU(approximate="tanh")',
        "The config names one form and the model computes the other."),
    "tied-weights-broken": Page(
        "Embedding and head are equal at the start and trained apart: twice the parameters, and a checkpoint that another implementation ties gives other logits.",
        "self.head.weight.data = self.embedding.weight.data.clone()",
        "self.head.weight = self.embedding.weight",
        "Two parameters have equal values, or the config says tied and the tensors are two."),
    "permutation-equivariant": Page(
        "The model sees a bag of words. It learns something, and stays far from what the same model with positions reaches.",
        "x = self.tokens(ids)",
        "x = self.tokens(ids) + self.positions(torch.arange(T))",
        "The first attention of the last query does not change when earlier tokens change places."),
    "positions-not-offset-in-cache": Page(
        "Each new token is at position 0 when a cache is used. Training and evaluation are right; generated text is not.",
        "positions = torch.arange(T)",
        "positions = torch.arange(cache_length, cache_length + T)",
        "With a cache the queries of the first layer differ from those of the whole text."),
    "rotary-pairs": Page(
        "Angles are laid out for neighbours and pairs are taken from halves, or the other way round. Each number is turned by a wrong angle, and scores no longer depend on distances alone.",
        "angles = freqs.repeat_interleave(2, -1); rotated = cat(-x[D/2:], x[:D/2])",
        "angles = cat(freqs, freqs); rotated = cat(-x[D/2:], x[:D/2])",
        "Scores of equal tokens at equal distances differ."),
    "rotary-on-values": Page(
        "Values are turned by their positions, so outputs depend on absolute places and lengths do not extrapolate.",
        "q, k, v = rotate(q), rotate(k), rotate(v)",
        "q, k = rotate(q), rotate(k)",
        "Values of equal tokens differ by position."),
    "sinusoid-frequency": Page(
        "With i instead of 2i in the exponent half of the frequencies are missing: far positions look alike.",
        "freq = 10000 ** (-torch.arange(E // 2) / E)",
        "freq = 10000 ** (-2 * torch.arange(E // 2) / E)",
        "The table's angles at position 1 do not fall from 1 as the formula says, or sine and cosine of a pair differ."),
    "positions-past-length-wrap": Page(
        "Texts beyond the length reuse positions without an error: two tokens at one place.",
        "pos = torch.arange(T) % max_length",
        'if T > max_length: raise ValueError(f"{T} tokens, at most {max_length}")',
        "A text longer than the table is accepted, and positions are looked up twice."),
    "cache-differs": Page(
        "Generation with the cache is another model than the one that was trained.",
        "k = torch.cat((k, past_k), dim=2)",
        "k = torch.cat((past_k, k), dim=2)",
        "Single tokens, chunks or left-padded rows with the cache give other outputs than the whole text."),
    "cache-mutated-in-place": Page(
        "A cache or module keeps what an earlier call left behind: the second use of a prefix, a beam or an evaluation reads another text's state.",
        "self.memory = torch.cat((self.memory, k), 1)",
        "return y, torch.cat((memory, k), 1)",
        "The same call gives another output the second time, or the cache that was passed in has changed."),
    "cache-shared-between-rows": Page(
        "All rows of a batch read the first row's keys.",
        "past_k = past_k[:1].expand(B, -1, -1, -1)",
        "past_k = past_k  # a row for each row",
        "With a cache a batch is wrong and a single row is right."),
    "cross-attention-recomputed": Page(
        "Keys and values of the source are computed again for each token: correct, and slow.",
        "k, v = self.key(memory), self.value(memory)  # each step",
        "k, v = cache.source or (self.key(memory), self.value(memory))",
        "A step with a cache projects all source positions."),
    "loss-not-shifted": Page(
        "The model learns to copy its input. The loss goes to zero within minutes.",
        "F.cross_entropy(logits.flatten(0, 1), tokens.flatten())",
        "F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())",
        "The model's own loss equals the cross-entropy of outputs with their own inputs."),
    "loss-shifted-twice": Page(
        "Data and model both shift. The model learns to predict the token after the next one; the loss is high, and text skips words.",
        "loss = model(tokens[:, :-1], labels=tokens[:, 1:])  # and the model shifts again",
        "loss = model(tokens, labels=tokens)",
        "The model's own loss equals the cross-entropy with targets shifted once too often."),
    "loss-counts-padding": Page(
        "Padding is easy to predict: the loss looks good and depends on how much padding a batch has.",
        "F.cross_entropy(logits, targets, reduction='none', ignore_index=-100).mean()",
        "F.cross_entropy(logits, targets, ignore_index=-100)",
        "With ignored targets the loss is not the mean over the others."),
    "mean-of-means": Page(
        "Rows or microbatches with few tokens count as much as long ones. Accumulating gradients gives another result than one large batch.",
        "loss = torch.stack([mean_loss(row) for row in batch]).mean()",
        "loss = sum_of_losses / number_of_tokens",
        "With rows of different lengths the loss is the mean of the rows' means."),
    "initial-loss": Page(
        "An untrained model should be unsure: ln V. A larger loss means logits of a large spread, usually tied embeddings drawn from N(0, 1); the first steps only undo that.",
        "self.head.weight = self.embedding.weight  # nn.Embedding draws N(0, 1)",
        "nn.init.normal_(self.embedding.weight, std=0.02)",
        "The loss on random tokens is far above ln V."),
    "dead-parameters": Page(
        "A parameter that no output depends on is not trained: a layer was built and forgotten in the forward pass.",
        "self.positions = nn.Embedding(L, E)  # and never used",
        "x = x + self.positions(pos)",
        "After a backward pass from all outputs its gradient is None."),
    "dropout-in-eval": Page(
        "Evaluation and generation are noisy and worse than the model is.",
        "x = F.dropout(x, 0.1)",
        "x = F.dropout(x, 0.1, training=self.training)",
        "A dropout operation is active in eval mode."),
    "dropout-on-scores": Page(
        "A dropped score is 0, a score like any other. A hidden score of -inf times 0 is NaN; one of -1e9 becomes 0, so that hidden keys come back in training.",
        "weights = self.dropout(scores).softmax(-1)",
        "weights = self.dropout(scores.softmax(-1))",
        "In train mode a dropout stands before the softmax."),
    "dropout-not-applied": Page(
        "The config says 0.1 and the model trains with 0: it overfits, and experiments with the rate show no effect.",
        "y = F.scaled_dot_product_attention(q, k, v)",
        "y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.p if self.training else 0.0)",
        "A dropout module is never called in train mode, or train mode is not random at all."),
    "eval-nondeterministic": Page(
        "The same input gives another output each time: no figure can be reproduced.",
        "x = x + 0.01 * torch.randn_like(x)",
        "x = x + 0.01 * torch.randn_like(x) if self.training else x",
        "Two calls in eval mode with different random seeds differ."),
    "gradient-through-memory": Page(
        "The memory of a segment keeps its graph: the next backward pass fails, or walks through all earlier segments.",
        "return logits, hidden",
        "return logits, hidden.detach()",
        "The returned memory requires a gradient."),
    "half-precision-overflow": Page(
        "Numbers above 65504 are infinite in float16, and the softmax gives NaN.",
        "scores = (q @ k.transpose(-2, -1)) / math.sqrt(D)",
        "scores = (q / math.sqrt(D)) @ k.transpose(-2, -1)",
        "Outputs are finite in float32 and not in float16."),
    "checkpointing-changes-gradient": Page(
        "The recomputation sees another state or other random numbers, so gradients are wrong without an error.",
        "checkpoint(block, x, preserve_rng_state=False)",
        "checkpoint(block, x, use_reentrant=False)",
        "Gradients with and without activation checkpointing differ."),
}
# fmt: on


def page(name: str, picture: str = "") -> str:
    """The page of a bug, in Markdown; `picture` stands before how it shows."""
    if name not in ENTRIES:
        raise ValueError(f"there is no check {name!r}: {nearest(name, ENTRIES)}")
    entry, told = ENTRIES[name], PAGES[name]
    return (
        f"### {name}\n\n"
        f"*{entry.severity.value}, {entry.group}*: {entry.summary}.\n\n"
        f"{told.does}\n\n"
        f"```text\nwrong   {told.wrong}\nright   {told.right}\n```\n\n"
        + (f"{picture}\n" if picture else "")
        + f"**How it shows.** {told.shows}\n"
    )


def all_pages(picture: Callable[[str], str]) -> str:
    """Every page with its picture, by group."""
    groups: dict[str, list[str]] = {}
    for entry in ENTRIES.values():
        groups.setdefault(entry.group, []).append(page(entry.name, picture(entry.name)))
    return "\n".join(
        f"## {group[0].upper()}{group[1:]}\n\n" + "\n".join(pages)
        for group, pages in groups.items()
    )
