"""A trace by stages, and the arithmetic of norms and hidden units, from a model's weights."""

import math
from functools import cached_property
from types import SimpleNamespace

import torch

from clearformer.explore.trace import trace

from .functions import entropy

STAGES = (
    "attn_in", "attn_out", "q_proj", "k_proj", "q", "k", "v", "scores_raw", "scores_scaled",
    "bias", "scores_masked", "weights", "head_out", "resid_pre", "resid_mid", "resid_post",
    "mlp_pre", "mlp_hidden", "mlp_out", "attn_norm_scale", "mlp_norm_scale", "final_norm_scale",
)  # fmt: skip


class Traced:
    """The stages of one trace by name, part and layer."""

    def __init__(self, model, tokens):
        self.trace = trace(model, tokens)
        self.logits = self.trace.logits.double()
        self.ids = SimpleNamespace(**{p: self.trace.input.queries(p) for p in self.trace.parts})
        for stage in STAGES:
            setattr(self, stage, SimpleNamespace(**self._layers(stage)))
        weights = {part: getattr(self.weights, part) for part in self.trace.parts}
        self.entropy = SimpleNamespace(
            **{p: [[self._entropies(h) for h in layer] for layer in w] for p, w in weights.items()}
        )
        self.first = SimpleNamespace(
            **{p: [[float(h[:, 0].mean()) for h in layer] for layer in w]
               for p, w in weights.items()}
        )  # fmt: skip

    @staticmethod
    def _entropies(head):
        return torch.tensor([entropy(row) for row in head])

    def _layers(self, stage):
        recorded = self.trace.recorded
        parts = {}
        for (part, _), stages in recorded.items():
            if stage in stages:
                parts.setdefault(part, []).append(stages[stage][0].double())
        return parts

    @cached_property
    def streams(self):
        """The residual stream row by row: the embedding, then after each part of each layer."""
        out = {}
        for part in self.trace.parts:
            if part == "cross":
                continue
            rows = [getattr(self.resid_pre, part)[0]]
            for layer in self.trace.layers(part):
                rows.append(getattr(self.resid_mid, part)[layer])
                if part == "decoder":
                    rows.append(self.resid_mid.cross[layer])
                rows.append(getattr(self.resid_post, part)[layer])
            out[part] = torch.stack(rows)
        return out

    @property
    def stream(self):
        return SimpleNamespace(**{p: rows.norm(dim=-1) for p, rows in self.streams.items()})

    @cached_property
    def lens(self):
        """Probabilities after the embedding and after each layer: (L+1, T, V)."""
        module = self.trace.model.module
        *_, stack = module.stacks.values()
        part = "decoder" if "decoder" in self.streams else "self"
        post = [getattr(self.resid_pre, part)[0], *getattr(self.resid_post, part)]
        with torch.inference_mode():
            logits = module.head.token_head(stack.norm(torch.stack(post).float()))
        return logits.double().softmax(-1)


def normalization(module, x):
    """Every step of the arithmetic of a LayerNorm or an RMSNorm on a vector in float64."""
    rms = isinstance(module, torch.nn.RMSNorm)
    mean = 0.0 if rms else float(x.mean())
    variance = float((x - mean).square().mean())
    epsilon = module.eps or torch.finfo(torch.float32).eps
    root = math.sqrt(variance + epsilon)
    weight, bias = (None if each is None else each.detach().double()
                    for each in (module.weight, getattr(module, "bias", None)))  # fmt: skip
    output = (x - mean) / root
    output = output if weight is None else output * weight
    output = output if bias is None else output + bias
    return SimpleNamespace(x=x, mean=mean, centred=x - mean, variance=variance, epsilon=epsilon,
                           root=root, normalized=(x - mean) / root, weight=weight, bias=bias,
                           output=output)  # fmt: skip


class Hidden:
    """The hidden units of a feed-forward layer at one token, from its weights: each (F,)."""

    def __init__(self, names, part, layer, i):
        module = names["block"](part, layer).feed_forward
        self.names, self.up, self.down = names, module.up, module.down
        x = names["read"]("mlp", part, layer)[i]
        if names.config.residual == "pre":
            x = names["normed"]("mlp", part, layer, i).output
        else:
            cross = part == "decoder"
            x = (names["resid_mid"].cross if cross else getattr(names["resid_mid"], part))[layer][i]
        self.x = x
        count = self.down.in_features
        rows = self.up.weight.detach().double() @ x
        rows = rows if self.up.bias is None else rows + self.up.bias.detach().double()
        self.pre, self.gated = rows[:count], len(rows) == 2 * count
        self.value = rows[count:]
        with torch.inference_mode():
            self.activation = module.activation(self.pre.clone())
        self.post = self.activation * self.value if self.gated else self.activation
        matrix = self.down.weight.detach().double()  # (E, F)
        self.added = (matrix * self.post).T  # (F, E)
        self.norm = self.added.norm(dim=-1)
        bias = 0.0 if self.down.bias is None else self.down.bias.detach().double()
        output = self.added.sum(0) + bias
        own = getattr(names["mlp_out"], part)[layer][i]
        assert (output - own).abs().max() < 1e-4  # the formula is what the model computed
        self.share = self.added @ output / output.square().sum()
        self.order = self.post.abs().argsort(descending=True, stable=True)
        self.active = int((self.post.abs() > 1e-6).sum())

    def unit(self, j):
        found = {name: getattr(self, name)[j] for name in ("pre", "activation", "post", "added")}
        found["value"] = self.value[j] if self.gated else None
        rows = {"": j} | ({"value_": len(self.post) + j} if self.gated else {})
        for prefix, row in rows.items():
            w = self.up.weight[row].detach().double()
            found[f"{prefix}w"], found[f"{prefix}products"] = w, w * self.x
            found[f"{prefix}b"] = 0.0 if self.up.bias is None else float(self.up.bias[row].detach())
        found["column"] = self.down.weight[:, j].detach().double()
        head = getattr(self.names.loaded.model.module.head, "token_head", None)
        if hasattr(head, "project"):
            found["pushed"] = head.project.weight.detach().double() @ found["added"]
        return SimpleNamespace(x=self.x, **found)


class PartNames:
    """The names of norms and hidden units."""

    def _table(self):
        return lambda part: self["embedding"](part).token.weight.shape

    def _pairs(self):
        return lambda part: self["embedding"](part).neighbours.table.weight.shape

    def _embedding(self):
        names = {"self": "embedding", "encoder": "source_embedding", "decoder": "target_embedding"}
        return lambda part: getattr(self.loaded.model.module, names[part])

    def _block(self):
        stacks = self.loaded.model.module.stacks
        return lambda part, layer: stacks[part].blocks[layer]

    def _normed(self):
        """The arithmetic of a norm at one token, from the residual stream."""

        def normed(which, part, layer, i):
            if which == "embedding":
                module, x = self["embedding"](part).norm, self["embedded"](part)[i]
            elif which == "final":
                stack = self.loaded.model.module.stacks[part]
                module, x = stack.norm, getattr(self["resid_post"], part)[-1][i]
            else:
                names = {"attention": "attention_norm", "cross": "cross_attention_norm",
                         "mlp": "feed_forward_norm"}  # fmt: skip
                module = getattr(self["block"](part, layer), names[which])
                x = self["read"](which, part, layer)[i]
            return normalization(module, x)

        return normed

    def _read(self):
        """What the norm of a sublayer reads: (T, E)."""

        def read(which, part, layer):
            stream = {"attention": getattr(self["resid_pre"], part)[layer]}
            stream["mlp"] = stream["cross"] = getattr(self["resid_mid"], part)[layer]
            if part == "decoder":
                stream["mlp"] = self["resid_mid"].cross[layer]
            if self.config.residual == "pre":
                return stream[which]
            stage = "mlp_out" if which == "mlp" else "attn_out"
            return (
                stream[which] + getattr(self[stage], "cross" if which == "cross" else part)[layer]
            )

        return read

    def _embedded(self):
        """The sum of the embeddings before their norm: (T, E)."""

        def embedded(part):
            module, ids = self["embedding"](part), torch.tensor(getattr(self["ids"], part))
            rows = module.token.weight[ids] + module.position.table.weight[: len(ids)]
            return (rows + module.segment.weight[0]).detach().double()

        return embedded

    def _hidden(self):
        return lambda part, layer, i: Hidden(self, part, layer, i)

    def _unit(self):
        """One hidden unit: the numbers of `hidden`, and its rows and columns of the matrices."""
        return lambda part, layer, i, j: Hidden(self, part, layer, i).unit(j)
