"""The names of the expressions in `data-source`, each computed when it is asked for."""

import itertools
import json
import math
from functools import cached_property
from types import SimpleNamespace

import numpy as np
import torch

from clearformer.core.patterns import Causal, Full, Local, Strided
from clearformer.data.masking import UNITS, MaskingPolicy, TokenMasker
from clearformer.explore import attribution, coding, lessons
from clearformer.explore.inputs import decoder_input_ids
from clearformer.explore.limits import MAX_MAP_POINTS, Limits
from clearformer.explore.recording import attentions
from clearformer.explore.requests import AttributeRequest
from clearformer.explore.token_display import token_bytes
from clearformer.explore.trace import trace
from clearformer.explore.traced_model import encode, encode_source
from clearformer.generate.language_model import LanguageModel
from clearformer.generate.sampling import Sampling
from clearformer.generate.stream import stream
from clearformer.interventions import attention, edit, head, mlp, point

from .functions import FUNCTIONS, most, softmax, tensor
from .parts import PartNames, Traced


class Names(PartNames, dict):
    """The names of the expressions on a page of one model, computed when they are asked for."""

    def __init__(self, loaded, text, *, ids=None, target=None, folder=None, facts=None):
        super().__init__(FUNCTIONS)
        self.loaded, self.text, self.folder = loaded, text, folder
        self.facts = facts or {}  # what the reader chose on the page
        self.given = self.model_input(loaded, text, ids, target)

    @staticmethod
    def model_input(loaded, text, ids=None, target=None):
        if "translate" not in loaded.config.verbs:
            return text if ids is None else ids
        source = encode_source(loaded.model, text)
        if target is None:
            target = decoder_input_ids(loaded, source, None, Limits())
        return source, target

    def __missing__(self, name):
        if name == "text":
            return self.text
        maker = getattr(self, f"_{name}", None)
        self[name] = getattr(self.traced, name) if maker is None else maker()
        return self[name]

    @cached_property
    def traced(self):
        return Traced(self.loaded.model, self.given)

    @property
    def config(self):
        return self.loaded.config

    # --- the model

    def _model(self):
        config, module = self.config, self.loaded.model.module
        return SimpleNamespace(
            n_layers=len(next(iter(module.stacks.values())).blocks),
            n_heads=config.heads,
            n_key_heads=config.key_heads or config.heads,
            d_model=config.width,
            d_hidden=config.hidden,
            segment=config.length,
            memory=config.memory,
            max_len=config.length,
            d_head=config.resolved_head_width,
            vocab_size=config.vocabulary,
            n_params=sum(p.numel() for p in module.parameters()),
        )

    def _limit(self):
        return min(Limits().max_tokens, self.config.position.max_length(self.config.length) or 512)

    def _tokens(self):
        return self.traced.trace.input.tokens[0].tolist()

    def _bytes_of(self):
        tokenizer = self.loaded.model.tokenizer

        def of(id):
            data = token_bytes(tokenizer, id)
            data = tokenizer.pieces([id])[0].encode() if data is None else data
            return " ".join(f"{byte:02X}" for byte in data)

        return of

    def _row(self):
        """The weights and the bias of one component of a query, key or value."""

        def row(which, part, layer, head, d):
            attention = attentions(self.loaded.model.module)[part, layer]
            key_head = head // (attention.heads // attention.key_heads)
            heads = {"q": head, "k": attention.heads + key_head}
            heads["v"] = attention.heads + attention.key_heads + key_head
            n = heads[which] * attention.head_width + d
            bias = attention.project.bias
            weight = attention.project.weight[n].detach().double()
            return weight, 0.0 if bias is None else float(bias[n].detach())

        return row

    def _product(self):
        def product(which, part, layer, head, i, d):
            return float(
                getattr(self["attn_in"], part)[layer][i]
                @ self["row"](which, part, layer, head, d)[0]
            )

        return product

    def _offset(self):
        return lambda which, part, layer, head, i, d: self["row"](which, part, layer, head, d)[1]

    def _apart(self):
        def apart(part, layer, i):
            of = {name: getattr(self[name], part)[layer][i] for name in
                  ("resid_pre", "attn_out", "mlp_out", "resid_post")}  # fmt: skip
            parts = of["resid_pre"] + of["attn_out"] + of["mlp_out"]
            if part == "decoder":
                parts = parts + self["attn_out"].cross[layer][i]
            return most(of["resid_post"] - parts)

        return apart

    def _outputs(self):
        names = getattr(self.config.head, "names", None)
        return len(names) if names else self.config.vocabulary

    def _pattern(self):
        return lambda layer: self.config.patterns[layer % len(self.config.patterns)]

    # --- language models

    def _bits(self):
        config = self.config
        ids = self.traced.trace.input.queries(config.writing_part)
        logs = self["logits"].log_softmax(-1) / math.log(2)
        return [math.nan, *(-float(logs[place, id]) for place, id in enumerate(ids[1:]))]

    def _loss(self):
        return math.log(2) * float(tensor(self["bits"][1:]).mean())

    def _edited(self):
        """The logits with what the address changes: heads off, weights set, another text put in."""
        off = [each.split(".") for each in self.facts.get("off", "").split(",") if each]
        cells = [each.split(".", 5) for each in self.facts.get("set", "").split(",") if each]
        zero = [
            mlp(int(layer), part) if which == "m" else head(int(layer), int(which), part)
            for part, layer, which in off
        ]
        weights = {
            attention(int(layer), int(h), part)[int(i), int(j)]: float(weight)
            for part, layer, h, i, j, weight in cells
        }
        replaced = {}
        if "other" in self.facts:
            place = point(self.facts["patch"], self.facts["layer"]).at(self.facts["i"])
            replaced = {place: trace(self.loaded.model, self.facts["other"])}
        with edit(self.loaded.model, zero=zero, weights=weights, replace=replaced):
            return trace(self.loaded.model, self.given).logits.double()

    def _edited_loss(self):
        ids = torch.tensor(self.traced.trace.input.queries(self.config.writing_part))
        return float(torch.nn.functional.cross_entropy(self["edited"][:-1], ids[1:]))

    def _characters(self):
        model = self.loaded.model
        ids = self.traced.trace.input.queries(self.config.writing_part)
        whole = model.tokenizer.decode(ids)
        return len(whole) - len(model.tokenizer.decode(ids[:1]).rstrip("�"))

    def _generated(self):
        model = self.loaded.model
        writer = LanguageModel(model.module, model.config, model.generation, model.tokenizer)
        return list(stream(writer, self.text, Sampling(), max_tokens=2, seed=1))

    def _uniform(self):
        return self["generated"][len(self.facts.get("drawn", ()))].uniform

    def _decoded(self):
        """The logits after the prompt and after each written token, as generation reads them."""
        model = self.loaded.model
        writer = LanguageModel(model.module, model.config, model.generation, model.tokenizer)
        decoder = writer.decoder()
        rows = [decoder.prefill([list(writer.encode(self.text))], 4)[0].double()]
        rows += [decoder.step([id])[0].double() for id in self.facts.get("drawn", ())]
        if self.config.memory is None:
            assert (rows[-1] - self["logits"][-1]).abs().max() < 1e-4
        return rows

    def _next_logits(self):
        return self["decoded"][-1]

    def _drawn(self):
        """The first tokens that were written, with the distribution that each was drawn from."""
        first = self["generated"][0]
        p = softmax(self["decoded"][0])
        own = SimpleNamespace(u=first.uniform, p=float(p[first.id]), bits=-math.log2(p[first.id]))
        own.p_of = p
        return [own][: len(self.facts["drawn"])]

    def _coded(self):
        told = coding.coding(self.loaded, self.text, Limits())["tokens"]
        found = [SimpleNamespace(**each) for each in told]
        # Frequencies are probabilities in integers; with a memory the coder reads differently.
        if self.config.memory is None:
            for each, bits in zip(found[1:], self["bits"][1:], strict=True):
                assert abs(each.bits - bits) < 0.05 + 0.01 * bits
        return found

    # --- order

    def _moved(self):
        return SimpleNamespace(off=self._drift(positions=False), on=self._drift(positions=True))

    def _drift(self, positions):
        order = self.facts["order"]
        ids = torch.tensor(self["tokens"])

        def outputs(row):
            pair = "translate" in self.config.verbs
            memory = None if self.config.memory is None else 0
            given = (row, row) if pair else row
            found = trace(self.loaded.model, given, ["resid_post"], mask="none",
                          positions=positions, segment=len(row), memory=memory)  # fmt: skip
            return found.get("resid_post", self.config.layers - 1, part=found.parts[0])

        return (outputs(ids[order]) - outputs(ids)[order]).abs().amax(-1)

    def _similarity(self):
        count = min(self.config.length, 256)
        if self.facts["positions"] == "learned":
            module = self.loaded.model.module
            table = next(
                p for n, p in module.named_parameters() if n.endswith("position.table.weight")
            )
            rows = torch.nn.functional.normalize(table[:count].detach().double(), dim=-1)
            return rows @ rows.T
        rotary = self.facts["positions"] == "rotary"
        width = self.config.resolved_head_width if rotary else self.config.width
        base = self.config.position.base if rotary else 10_000
        speeds = base ** (-torch.arange(0, width, 2, dtype=torch.double) / width)
        apart = torch.arange(count)[:, None] - torch.arange(count)[None]
        return (apart[..., None] * speeds).cos().mean(-1)

    # --- maps of embeddings

    def _map(self):
        def found(kind, checkpoint, axes, part):
            rows, cut = self._map_vectors(kind, self.facts["open"](checkpoint), part)
            other, _ = self._map_vectors(kind, self.facts["open"](axes), part)
            _, _, directions = np.linalg.svd(other - other.mean(0), full_matrices=False)
            signs = np.sign([each[np.abs(each).argmax()] for each in directions[:2]])
            points = (rows - other.mean(0)) @ (directions[:2] * signs[:, None]).T
            spread = rows - rows.mean(0)
            unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
            return SimpleNamespace(
                points=points.tolist(), cut=cut, labels=rows, shown=self._map_shown(kind, other),
                shares=points.var(0) * len(rows) / (spread**2).sum(),
                norm=lambda i: float(np.linalg.norm(rows[i])),
                cosine=lambda i, j: float(unit[i] @ unit[j]),
            )  # fmt: skip

        return found

    def _map_vectors(self, kind, loaded, part):
        module, config = loaded.model.module, loaded.config
        stack = {"decoder": "target_embedding", "encoder": "source_embedding"}.get(part)
        if kind == "sentences":
            return self._sentence_vectors(loaded)
        embedding = module.get_submodule(stack or "embedding")
        if kind == "tokens":
            return embedding.token.weight.detach().double().numpy(), 0
        if embedding.position is not None:
            return embedding.position.table.weight.detach().double().numpy(), 0
        speeds = 10_000 ** (-np.arange(0, config.width, 2) / config.width)
        angles = np.arange(config.length)[:, None] * speeds
        return np.stack((np.sin(angles), np.cos(angles)), -1).reshape(config.length, -1), 0

    def _sentence_vectors(self, loaded):
        """The mean of the last hidden states, from a trace of each text."""
        rows, cut = [], 0
        for text in self.facts["texts"]:
            given = self.model_input(loaded, text, target=[0])
            if loaded.config.memory is not None:  # the page reads one segment
                given = encode(loaded.model, text)
                cut += len(given) > loaded.config.length
                given = given[: loaded.config.length]
            found = trace(loaded.model, given, ["resid_post"])
            part, stack = next(iter(loaded.model.module.stacks.items()))
            states = found.get("resid_post", loaded.config.layers - 1, part=part)
            with torch.inference_mode():
                rows.append(stack.norm(states).mean(0).double().numpy())
        return np.stack(rows), cut

    def _map_shown(self, kind, rows):
        """The tokens of the text and their nearest neighbours: the nearest of each, the second."""
        if kind != "tokens" or len(rows) <= MAX_MAP_POINTS:
            return list(range(len(rows)))
        shown = list(dict.fromkeys(self["tokens"]))
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        near = (-unit[shown] @ unit.T).argsort(1)[:, : -(-MAX_MAP_POINTS // len(shown)) + 1]
        shown += [each for each in dict.fromkeys(near.T.flatten()) if each not in shown]
        return shown[:MAX_MAP_POINTS]

    # --- tasks

    def _probability(self):
        names = self.config.head.names
        return dict(zip(names, softmax(self["logits"]).tolist(), strict=True))

    def _attributed(self):
        request = AttributeRequest(model="m", text=self.text, method="ig")
        return attribution.attribute(self.loaded, request, Limits())

    def _attribution(self):
        from clearformer.explore.arrays import unpack

        return SimpleNamespace(ig=torch.from_numpy(unpack(self["attributed"]["values"]).copy()))

    def _change(self):
        """The score of the label on this text, less that of an input of zeros."""
        return self["attributed"]["completeness"]["total"]

    def _pool(self):
        return [1 / len(self["tokens"])] * len(self["tokens"])

    def _masked_logits(self):
        ids = list(self["tokens"])
        for place in self.facts["masked"]:
            ids[place] = self.loaded.model.tokenizer.mask
        return Traced(self.loaded.model, ids).logits

    def _masking(self):
        return self.loaded.entry.run_config.data.masking

    def _fates(self):
        how, tokenizer = self["masking"], self.loaded.model.tokenizer
        policy = MaskingPolicy(how.rate, how.mask_replace, how.random_replace, UNITS[how.unit])
        ids = np.array([self["tokens"]])
        shown, targets = TokenMasker(tokenizer, policy).corrupt(ids, np.ones_like(ids, bool), 1, 0)
        fates = []
        for before, after, wanted in zip(ids[0], shown[0], targets[0], strict=True):
            kinds = "mask" if after == tokenizer.mask else "random" if after != before else "kept"
            fates.append("untouched" if wanted < 0 else kinds)
        return fates

    # --- models side by side

    def _of(self):
        """The names of another model on the same text, as attributes."""
        found = {}

        def of(id):
            if id not in found:
                names = Names(self.facts["models"](id), self.text)
                found[id] = type("Of", (), {"__getattr__": lambda _, name: names[name]})()
            return found[id]

        return of

    def _filled(self):
        """The logits at a token that is hidden."""

        def filled(place):
            ids = list(self["tokens"])
            ids[place] = self.loaded.model.tokenizer.mask
            return Traced(self.loaded.model, ids).logits[place]

        return filled

    def _mask(self):
        patterns = {"full": Full(), "causal": Causal()}
        return lambda kind, n: patterns[kind].table(n, n)

    # --- two checkpoints

    def _side(self, checkpoint):
        loaded = self.facts["open"](checkpoint)
        # Both sides read the same target.
        return Traced(loaded.model, self.given)

    def _a(self):
        return self._side(self.facts["a"])

    def _b(self):
        return self._side(self.facts["b"])

    def _at(self):
        return self._side

    def _difference(self):
        a, b = self["a"].weights, self["b"].weights
        return SimpleNamespace(
            **{part: torch.stack(getattr(b, part)) - torch.stack(getattr(a, part))
               for part in self.traced.trace.parts}
        )  # fmt: skip

    def _kl(self):
        logs = [self[side].logits.log_softmax(-1) / math.log(2) for side in ("a", "b")]
        return (2 ** logs[0] * (logs[0] - logs[1])).sum(-1).reshape(-1)

    # --- a run

    def _records(self):
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def _curve(self, field):
        return {r["step"]: r[field] for r in self["records"] if "event" not in r}

    def _evaluated(self, field):
        return {r["step"]: r[field] for r in self["records"] if r.get("event") == "evaluation"}

    def _train_loss(self):
        return self._curve("loss")

    def _learning_rate(self):
        return self._curve("lr")

    def _gradient_norm(self):
        return self._curve("gradient_norm")

    def _targets_per_second(self):
        rows = [r for r in self["records"] if "event" not in r]
        return {
            now["step"]: (now["tokens"] - before["tokens"]) / (now["seconds"] - before["seconds"])
            for before, now in itertools.pairwise(rows)
        }

    def _val_loss(self):
        return self._evaluated("loss")

    def _bits_per_byte(self):
        return self._evaluated("bits_per_byte")

    def _last_step(self):
        return max(self["train_loss"])

    def _steps(self):
        return self.loaded.entry.run_config.train.steps

    # --- lessons without a model

    def _n(self):
        return 64

    def _edges(self):
        return int(self["reach"][0].sum())

    def _reach(self):
        one = (Causal() & (Local(8) | Strided(8))).table(64, 64).double()
        return [one, one, (one @ one > 0).double()]  # the pattern, after one layer, after two

    def _far(self):
        return [16, 32]

    def _x(self):
        return torch.tensor(self.facts["x"], dtype=torch.double)

    def _dots(self):
        return self["x"] @ self["x"].T

    def _shares(self):
        return softmax(self["dots"])

    def _sums(self):
        return self["shares"] @ self["x"]

    def _sampled(self):
        told = lessons.scaling(64, 256, 1)
        return SimpleNamespace(
            **{side: SimpleNamespace(**told[side]) for side in ("raw", "scaled")}
        )

    def _span(self):
        sides = (self["sampled"].raw, self["sampled"].scaled)
        return max(abs(edge) for side in sides for edge in side.histogram["edges"])
