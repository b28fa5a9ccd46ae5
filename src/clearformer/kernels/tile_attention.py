"""Attention over tiles of a sparse pattern, forward and backward.

A query may be in tiles of several parts of its pattern, so its softmax is computed online: with
the largest score so far, the sum of exponentials relative to it, and the weighted sum of values
(Milakov and Gimelshein 2018). The backward pass recomputes the weights of each tile from the final
sum (Dao et al. 2022), so that only queries, keys, values and outputs are saved between the passes.

Axes: B batch, H heads, Z = B x H, Q queries, K keys, D head width; of a few tiles at a time:
N tiles, M queries of each, J keys of each.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from clearformer.kernels.tiles import Tiles

MAX_SCORES = 2**20  # at a time: a few MB, which fit into the CPU cache


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tiles: tuple[Tiles, ...],
    attention_mask: Tensor | None,
    bias: Tensor | None,
    dropout: float,
) -> Tensor:
    """softmax(q k^T / sqrt(D) + bias) v over the pairs in `tiles` (eq. 7 to eq. 9).

    q (B, H, Q, D), k and v (B, H, K, D), attention_mask (B, K), bias broadcasting to (B, H, Q, K).
    """
    # One seed per call: the backward pass draws the same dropout masks again.
    seed = int(torch.randint(2**62, ())) if dropout else 0
    # Autocast would compute the sums in half precision.
    with torch.autocast(q.device.type, enabled=False):
        y: Tensor = TileAttention.apply(q, k, v, bias, attention_mask, tiles, dropout, seed)  # type: ignore[no-untyped-call]
    return y  # (B, H, Q, D)


class Piece(NamedTuple):
    """A few tiles of one size, for all sequences and heads."""

    query: Tensor  # (N * M,)
    key: Tensor  # (N * J,)
    hidden: Tensor  # (B or 1, 1, N, M, J)
    kept: Tensor | None  # (Z * N, M, J), 0 or 1 / (1 - dropout)


class TileAttention(torch.autograd.Function):
    """The function and its gradient, tile by tile."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        attention_mask: Tensor | None,
        tiles: tuple[Tiles, ...],
        dropout: float,
        seed: int,
    ) -> Tensor:
        shape, precision = q.shape, torch.promote_types(q.dtype, torch.float32)
        queries = _rows(q, precision) / math.sqrt(shape[-1])  # (Z, Q+1, D)
        keys, values = _rows(k, precision), _rows(v, precision)  # (Z, K+1, D)
        lowest = torch.finfo(precision).min
        largest = queries.new_full(queries.shape[:2], float("-inf"))  # (Z, Q+1)
        total = torch.zeros_like(largest)  # (Z, Q+1)
        mixed = torch.zeros_like(queries)  # (Z, Q+1, D)
        for piece in _pieces(tiles, attention_mask, queries, shape, dropout, seed):
            scores = _scores(queries, keys, bias, piece, shape)  # (Z*N, M, J)
            n, m, _ = scores.shape
            before = largest[:, piece.query].view(n, m)
            now = torch.maximum(before, scores.amax(dim=-1))  # (Z*N, M)
            base = now.clamp(min=lowest)  # finite, also if no key was visible so far
            scores = scores.sub_(base[:, :, None]).exp_()
            rescale = (before - base).exp()  # what earlier sums are worth beside the new largest
            sums = total[:, piece.query].view(n, m) * rescale + scores.sum(dim=-1)
            if piece.kept is not None:
                scores *= piece.kept
            values_sum = torch.bmm(scores, _take(values, piece.key, n))  # (Z*N, M, D)
            values_sum += _take(mixed, piece.query, n) * rescale[:, :, None]
            _put(largest, piece.query, now)
            _put(total, piece.query, sums)
            _put(mixed, piece.query, values_sum)
        blind = total == 0
        y = mixed / total.masked_fill(blind, 1.0)[:, :, None]  # (Z, Q+1, D)
        log_total = (largest + total.log()).masked_fill(blind, 0.0)  # (Z, Q+1)
        y = y[:, :-1].view(shape).to(q.dtype)  # (B, H, Q, D)
        ctx.save_for_backward(q, k, v, bias, attention_mask, y, log_total)
        ctx.tiles, ctx.dropout, ctx.seed = tiles, dropout, seed
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, attention_mask, y, log_total = ctx.saved_tensors
        shape, precision = q.shape, torch.promote_types(q.dtype, torch.float32)
        scale = 1 / math.sqrt(shape[-1])
        queries, keys, values = (
            _rows(q, precision) * scale,
            _rows(k, precision),
            _rows(v, precision),
        )
        grad_output = _rows(gradient, precision)  # (Z, Q+1, D)
        row_term = (grad_output * _rows(y, precision)).sum(dim=-1)  # (Z, Q+1)
        grad_q, grad_k, grad_v = map(torch.zeros_like, (queries, keys, values))
        grad_bias = None if bias is None else torch.zeros(*shape[:3], k.shape[2]).to(queries)
        for piece in _pieces(ctx.tiles, attention_mask, queries, shape, ctx.dropout, ctx.seed):
            scores = _scores(queries, keys, bias, piece, shape)
            n, m, _ = scores.shape
            weights = scores.sub_(log_total[:, piece.query].view(n, m, 1)).exp_()  # (Z*N, M, J)
            tile_grad = _take(grad_output, piece.query, n)  # (Z*N, M, D)
            dropped = weights if piece.kept is None else weights * piece.kept
            _add(grad_v, piece.key, torch.bmm(dropped.transpose(1, 2), tile_grad))
            grad_scores = torch.bmm(tile_grad, _take(values, piece.key, n).transpose(1, 2))
            if piece.kept is not None:
                grad_scores *= piece.kept
            grad_scores = grad_scores.sub_(row_term[:, piece.query].view(n, m, 1)).mul_(
                weights
            )  # (Z*N, M, J)
            _add(grad_q, piece.query, torch.bmm(grad_scores, _take(keys, piece.key, n)))
            _add(
                grad_k,
                piece.key,
                torch.bmm(grad_scores.transpose(1, 2), _take(queries, piece.query, n)),
            )
            if grad_bias is not None:
                _add_pairs(grad_bias, piece, grad_scores)
        return (
            (grad_q[:, :-1] * scale).view_as(q).to(q.dtype),
            grad_k[:, :-1].reshape(k.shape).to(k.dtype),
            grad_v[:, :-1].reshape(v.shape).to(v.dtype),
            None if grad_bias is None else grad_bias.sum_to_size(bias.shape).to(bias.dtype),
            *(None,) * 4,
        )


def _pieces(
    tiles: tuple[Tiles, ...],
    attention_mask: Tensor | None,
    like: Tensor,
    shape: torch.Size,
    dropout: float,
    seed: int,
) -> Iterator[Piece]:
    batch, heads = shape[:2]
    for group in tiles:
        count = max(1, MAX_SCORES // (batch * heads * group.seen[0].numel()))
        for query, key, seen in zip(*(part.split(count) for part in group), strict=True):
            hidden = ~seen[None, None]  # (1, 1, N, M, J)
            if attention_mask is not None:
                # Padding of a tile is hidden already.
                visible = torch.nn.functional.pad(attention_mask, (0, 1))[:, key]  # (B, N, J)
                hidden = hidden | ~visible[:, None, :, None, :]
            kept = None
            if dropout:
                generator = torch.Generator(seen.device).manual_seed(seed)
                seed += 1
                size = (batch * heads * len(seen), *seen.shape[1:])
                kept = torch.rand(size, generator=generator, device=seen.device) >= dropout
                kept = kept.to(like.dtype) / (1 - dropout or 1)  # with a dropout of 1 none is left
            yield Piece(query.flatten(), key.flatten(), hidden, kept)


def _scores(
    queries: Tensor, keys: Tensor, bias: Tensor | None, piece: Piece, shape: torch.Size
) -> Tensor:
    """Scaled scores of a piece (Z*N, M, J), minus infinity for hidden pairs."""
    n = piece.hidden.shape[2] * queries.shape[0]
    scores = torch.bmm(
        _take(queries, piece.query, n), _take(keys, piece.key, n).transpose(1, 2)
    )  # (Z*N, M, J)
    by_head = scores.view(*shape[:2], *piece.hidden.shape[2:])  # (B, H, N, M, J)
    if bias is not None:
        by_head += _pairs(bias, piece)
    by_head.masked_fill_(piece.hidden, float("-inf"))
    return scores


def _pairs(table: Tensor, piece: Piece) -> Tensor:
    """The elements of a piece from a tensor (..., Q, K): (..., N, M, J)."""
    query, key = _pair_index(table, piece)
    return table[..., query, key]


def _add_pairs(table: Tensor, piece: Piece, cells: Tensor) -> None:
    """Add the elements of a piece (Z*N, M, J) to a tensor (B, H, Q, K)."""
    query, key = _pair_index(table, piece)
    flat = (query * table.shape[-1] + key).flatten()
    table.view(-1, table.shape[-2] * table.shape[-1]).index_add_(
        1, flat, cells.reshape(table.shape[0] * table.shape[1], -1)
    )


def _pair_index(table: Tensor, piece: Piece) -> tuple[Tensor, Tensor]:
    n, m, j = piece.hidden.shape[2:]
    # Padding of a tile is hidden, so that any index is right for it.
    query = piece.query.view(n, m, 1).clamp(max=table.shape[-2] - 1)
    return query, piece.key.view(n, 1, j).clamp(max=table.shape[-1] - 1)


def _rows(x: Tensor, precision: torch.dtype) -> Tensor:
    """(B, H, T, D) as (Z, T+1, D), with a row of zeros for the padding of tiles."""
    return torch.nn.functional.pad(x.flatten(0, 1).to(precision), (0, 0, 0, 1))


def _take(rows: Tensor, index: Tensor, n: int) -> Tensor:
    """Rows by index, for each tile: (Z, T+1, D) -> (Z*N, M or J, D)."""
    return rows.index_select(1, index).view(n, -1, rows.shape[-1])


def _put(rows: Tensor, index: Tensor, new: Tensor) -> None:
    rows.index_copy_(1, index, new.reshape(rows.shape[0], len(index), *rows.shape[2:]))


def _add(rows: Tensor, index: Tensor, new: Tensor) -> None:
    rows.index_add_(1, index, new.view(rows.shape[0], len(index), rows.shape[-1]))
