"""What all tests share: one thread (tensors are tiny), one seed, a small version of each family,
and texts that are hard to encode.
"""

import dataclasses
import importlib.util
import os

# Before torch is imported, and for child processes too: two of them would use four threads on two
# cores, and inductor would start a pool of processes in each worker to compile a few kernels.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import random
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from clearformer import config as c
from clearformer.builder import build
from clearformer.cli.main import main
from clearformer.config import (
    Causal,
    Classifier,
    DataConfig,
    Dropout,
    HiddenMemory,
    Local,
    MaskedToken,
    NextToken,
    Pretraining,
    RunConfig,
    Seq2SeqConfig,
    Strided,
    TrainConfig,
)
from clearformer.core.model import Batch, PairBatch
from clearformer.data import DataFolders
from clearformer.families import generator, modern, original, preset
from clearformer.generate.language_model import LanguageModel
from clearformer.runs.run import Run

torch.set_num_threads(1)

SMALL = {
    "vocabulary": 13,
    "length": 12,
    "layers": 2,
    "width": 16,
    "heads": 4,
    "hidden": 24,
    "dropout": Dropout(),
}
OWN = {
    "original": {"decoder_layers": 2},
    "xl": {"cache": HiddenMemory(length=12)},
    "sparse": {"patterns": (Causal() & Local(window=3), Causal() & Strided(stride=3))},
    "modern": {"key_heads": 2},
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """One worker for each CPU that this process may use, at most eight.

    xdist counts physical cores: on two hyperthreads of one core it would start one worker.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(usable or 1, 8)


# Folders whose tests share what is expensive: a server, browsers, or ranks that wait. The browser
# tests are apart from the explorer's others: together they are the longest work of any worker.
IN_ONE_WORKER = ("tests/explore/browser/", "tests/explore/", "tests/distributed/")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Run each of these folders in one worker, and first; distribute all other tests.

    By path, since xdist 3.8 ignores its own `xdist_group` marks under pytest 9.2.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return next((each for each in IN_ONE_WORKER if nodeid.startswith(each)), nodeid)

    return Scheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.fixture(scope="session", autouse=True)
def no_wait_for_disks():
    """Files of this process are not synced, since tens of thousands of syncs take several
    milliseconds each on some disks. Child processes sync theirs.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # which fails for a closed file, like fsync
        yield


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def float32_unless_asked(monkeypatch):
    """Training in tests uses float32 on every machine."""
    monkeypatch.setattr("clearformer.training.precision.supports_bfloat16", lambda device: False)


@pytest.fixture(scope="session")
def small():
    """A family's first preset with tiny numbers and no dropout, then with `changes`."""

    def config(family, **changes):
        return dataclasses.replace(preset(family), **{**SMALL, **OWN.get(family, {}), **changes})

    return config


@pytest.fixture(scope="session")
def scrambled():
    """Randomize every weight, so that none is zero, one or equal by its initialization."""

    def scramble(model):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        return model

    return scramble


@pytest.fixture(scope="session")
def example():
    """A random batch that the model of a config can learn from."""

    def batch(config, size=2, length=8):
        def ids(count, *shape):
            return torch.randint(count, shape)

        tokens, targets = (ids(config.vocabulary, size, length) for _ in range(2))
        if isinstance(config, Seq2SeqConfig):
            return PairBatch(ids(config.vocabulary, size, length - 1), tokens, targets)
        match config.head:
            case NextToken() | MaskedToken():
                return Batch(tokens, targets)
            case Classifier(classes=classes):
                return Batch(tokens, ids(classes, size))
            case Pretraining():
                return Batch(tokens, (targets, ids(2, size)), segments=ids(2, size, length))

    return batch


@pytest.fixture(scope="session")
def logits():
    """All logits of a model for a batch, as a tuple of tensors."""

    def run(model, batch):
        if isinstance(batch, PairBatch):
            return (
                model(
                    batch.source,
                    batch.target,
                    batch.source_attention_mask,
                    batch.target_attention_mask,
                ),
            )
        out = model(batch.tokens, batch.attention_mask, batch.segments)
        return out if isinstance(out, tuple) else (out,)

    return run


@pytest.fixture(scope="session")
def gradients():
    """Gradients of a model's summed loss on some batches, by parameter name."""

    def run(model, *batches):
        model.zero_grad(set_to_none=True)
        for batch in batches:
            total, _ = model.loss(batch)
            total.sum().backward()
        return {name: p.grad.clone() for name, p in model.named_parameters()}

    return run


# --- texts ---------------------------------------------------------------------------------

# Where alphabets, marks, combining signs, emoji, private use and the far planes are.
RANGES = [
    (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x5FF), (0x900, 0x97F), (0x2000, 0x206F),
    (0x3040, 0x30FF), (0x4E00, 0x4FFF), (0xAC00, 0xAD00), (0xE000, 0xE0FF), (0xFE00, 0xFE0F),
    (0x1F300, 0x1F6FF), (0xE0100, 0xE01EF), (0x10FF00, 0x10FFFF),
]  # fmt: skip
SPACES = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\x1c", "\x85", "\u2028", "   \n"]
MARKS = [
    "<br />",
    "don't",
    "'s",
    "<|endoftext|>",
    "[MASK]",
    "[CLS]",
    "##ing",
    "Ġ",
    "123456",
    "A'll",
]


@pytest.fixture(scope="session")
def strange_texts():
    chance = random.Random(0)
    texts = ["", " ", "\n", "a", "\ufeff", "e\u0301", "👩‍👩‍👧", "ΣΑΣ", "İ", "\x00", "\x7f\x80"]
    for _ in range(150):
        parts = []
        for _ in range(chance.randrange(1, 40)):
            kind = chance.random()
            if kind < 0.25:
                parts.append(chance.choice(SPACES))
            elif kind < 0.4:
                parts.append(chance.choice(MARKS))
            else:
                low, high = chance.choice(RANGES)
                word = (chr(chance.randint(low, high)) for _ in range(chance.randrange(1, 8)))
                parts.append("".join(word))
        texts.append("".join(parts))
    return texts


@pytest.fixture(scope="session")
def prose():
    """Plain English, from Python's own help."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics)[:25])


def beside(name):
    """A module in the folder of this file."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def several():
    """Several ranks for a test (several.py)."""
    return beside("several")


@pytest.fixture(scope="session")
def prompt_rows():
    """Plain beams of a model with one stack (plain_beams.py)."""
    return beside("plain_beams").PromptRows


@pytest.fixture(scope="session")
def plain():
    """The logits of a GPT-2 by its formulas (plain_gpt2.py)."""
    return beside("plain_gpt2").plain_gpt2


@pytest.fixture(scope="session")
def adapter_run():
    """Writes a run with an adapter whose weights are drawn, for the model of another run."""

    def write(base, out, adapter, seed=1):
        from clearformer.adapters.attach import attach
        from clearformer.config import Origin
        from clearformer.hub.peft_import import ImportedAdapter
        from clearformer.runs import finetune, load, state

        opened = load.open_any(base)
        config = opened.config
        model = build(config.model)
        finetune.load_pretrained(model, config.model, opened)
        attach(model, adapter, seed=0)
        generator = torch.Generator().manual_seed(seed)
        tensors = {
            name: each + 0.2 * torch.randn(each.shape, generator=generator)
            for name, each in state.weights(model, state.ADAPTER).items()
        }
        config = replace(
            config,
            train=TrainConfig(learning_rate=1.0, batch_size=1, steps=1, adapter=adapter),
            origin=Origin(folder=str(base), sha256=finetune.identity(opened.checkpoint)),
        )
        return ImportedAdapter("drawn", opened, config, tensors, ()).write(out)

    return write


# --- models small enough for many steps ---------------------------------------------------


@pytest.fixture
def small_config():
    return replace(generator(), vocabulary=20, length=12, layers=2, width=16, heads=2, hidden=32)


@pytest.fixture
def generator_model(small_config):
    return build(small_config)


@pytest.fixture
def modern_model():
    config = modern("tiny")
    return build(replace(config, vocabulary=20, length=12, layers=2, width=16, hidden=32))


@pytest.fixture
def train_config():
    return TrainConfig(learning_rate=1e-2, batch_size=8, steps=10)


@pytest.fixture(scope="session")
def trained_translator(tmp_path_factory):
    """A run of an encoder-decoder that spells backwards, with four checkpoints."""
    folder = tmp_path_factory.mktemp("translator")
    words = [f"{a}{b}{c}" for a in "abcdef" for b in "abc" for c in "abcd"]
    (folder / "a.in").write_text("\n".join(words))
    (folder / "a.out").write_text("\n".join(word[::-1] for word in words))
    model = replace(
        original("tiny"), length=16, layers=1, decoder_layers=1, width=16, heads=2, hidden=32
    )
    data = DataConfig(source=f"{folder / 'a.in'},{folder / 'a.out'}", tokenizer="characters")
    train = TrainConfig(
        learning_rate=1e-2, batch_size=32, steps=8, evaluations=4, keep_checkpoints=4, threads=1
    )
    config = RunConfig(model=model, data=data, train=train)
    for _ in Run(config, folder / "run", DataFolders()).events():
        pass
    return folder / "run"


@pytest.fixture
def shared_data():
    """The folder that CLEARFORMER_DATA names; tests that need it are skipped without."""
    folder = os.environ.get("CLEARFORMER_DATA")
    if not folder:
        pytest.skip("CLEARFORMER_DATA does not name a folder with corpora")
    return DataFolders(folder=Path(folder))


# --- models that write --------------------------------------------------------------------


@pytest.fixture(scope="session")
def writer(small, scrambled):
    """A language model over ids with random weights and changed config values."""

    def make(family="gpt2", tokenizer=None, generation=c.GenerationDefaults(), **changes):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            config = small(family, **changes)
            return LanguageModel(scrambled(build(config)).eval(), config, generation, tokenizer)

    return make


@pytest.fixture(scope="session")
def uncached():
    """The greedy continuation by the whole model, without a cache."""

    @torch.inference_mode()
    def greedy(writer, prompt, most):
        text = list(prompt)
        for _ in range(most):
            text.append(int(writer.module(torch.tensor([text]))[0, -1].argmax()))
        return text[len(prompt) :]

    return greedy


# --- translation ---------------------------------------------------------------------------

VOCABULARY, WIDTH, LAYERS, HEADS, HIDDEN = 301, 16, 2, 4, 24
PAD, END = 300, 0  # Marian's: targets begin with padding


def marian_config(**changes):
    numbers = {
        "vocab_size": VOCABULARY, "d_model": WIDTH, "encoder_layers": LAYERS,
        "decoder_layers": LAYERS, "encoder_attention_heads": HEADS,
        "decoder_attention_heads": HEADS, "encoder_ffn_dim": HIDDEN, "decoder_ffn_dim": HIDDEN,
        "max_position_embeddings": 64, "activation_function": "relu", "scale_embedding": True,
        "pad_token_id": PAD, "decoder_start_token_id": PAD, "eos_token_id": END,
        "forced_eos_token_id": None, "dropout": 0.0, "attn_implementation": "eager",
    }  # fmt: skip
    from transformers import MarianConfig

    return MarianConfig(**{**numbers, **changes})


def our_config(marian):
    return c.Seq2SeqConfig(
        name="original-marian",
        vocabulary=marian.vocab_size,
        length=marian.max_position_embeddings,
        layers=marian.encoder_layers,
        decoder_layers=marian.decoder_layers,
        width=marian.d_model,
        heads=marian.encoder_attention_heads,
        hidden=marian.encoder_ffn_dim,
        residual="post",
        activation={"relu": "relu", "swish": "silu"}[marian.activation_function],
        position=c.Sinusoidal(order="halves"),
        patterns=(c.Causal(),),
        head=c.NextToken(tied=True),
        cache=c.KVCache(),
        embedding_scale="sqrt_width",
        biases=c.Biases(head=True),
        init="xavier",
    )


def names(layers, decoder_layers):
    """Our name to theirs; several of theirs are concatenated."""
    table = {
        "source_embedding.token.weight": "model.shared.weight",
        "head.project.bias": "final_logits_bias",
    }
    for side, count in (("encoder", layers), ("decoder", decoder_layers)):
        for i in range(count):
            ours, theirs = f"{side}.blocks.{i}", f"model.{side}.layers.{i}"
            attentions = {"attention": "self_attn"}
            if side == "decoder":
                attentions["cross_attention"] = "encoder_attn"
            for mine, other in attentions.items():
                for kind in ("weight", "bias"):
                    table[f"{ours}.{mine}.project.{kind}"] = [
                        f"{theirs}.{other}.{part}.{kind}" for part in ("q_proj", "k_proj", "v_proj")
                    ]
                    table[f"{ours}.{mine}.output.{kind}"] = f"{theirs}.{other}.out_proj.{kind}"
                    table[f"{ours}.{mine}_norm.{kind}"] = f"{theirs}.{other}_layer_norm.{kind}"
            for kind in ("weight", "bias"):
                table[f"{ours}.feed_forward.up.{kind}"] = f"{theirs}.fc1.{kind}"
                table[f"{ours}.feed_forward.down.{kind}"] = f"{theirs}.fc2.{kind}"
                table[f"{ours}.feed_forward_norm.{kind}"] = f"{theirs}.final_layer_norm.{kind}"
    return table


def copied(theirs):
    """Our model with the weights of a MarianMTModel."""
    config = our_config(theirs.config)
    model = build(config)
    state = theirs.state_dict()
    found = {}
    for ours, other in names(config.layers, config.decoder_layers).items():
        if isinstance(other, list):
            found[ours] = torch.cat([state[name] for name in other])
        else:
            found[ours] = state[other].flatten() if ours.endswith(".bias") else state[other]
    own = dict(model.named_parameters())
    assert own.keys() == found.keys()
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(found[name])
    return model.eval(), config


@pytest.fixture
def marian():
    """(theirs, ours, our config) for a seed: sentences that end by themselves, at many lengths."""

    def make(seed=0, ending=2.0, **changes):
        torch.manual_seed(seed)
        from transformers import MarianMTModel

        theirs = MarianMTModel(marian_config(**changes)).eval()
        with torch.no_grad():
            for name, parameter in theirs.named_parameters():
                if "embed_positions" in name:
                    continue  # sines and cosines, and no weights
                if parameter.dim() == 2:
                    parameter.normal_(std=3 * parameter.shape[1] ** -0.5)
                else:
                    parameter.add_(0.2 * torch.randn_like(parameter))
            theirs.model.shared.weight.normal_(std=0.25)
        theirs.final_logits_bias.normal_(std=0.5)
        theirs.final_logits_bias[0, END] += ending
        return theirs, *copied(theirs)

    return make


@pytest.fixture
def sources():
    """Random sources of different lengths, each with an end token, and their mask."""

    def make(lengths, seed=0):
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(1, PAD, (len(lengths), max(lengths)), generator=generator)
        attention_mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        tokens[torch.arange(len(lengths)), torch.tensor(lengths) - 1] = END
        return tokens.masked_fill(~attention_mask, PAD), attention_mask

    return make


@dataclass
class Outcome:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def complaint(self):
        """The one line of a clean error."""
        assert self.code == 2, self.out + self.err
        assert self.err.count("\n") == 1, self.err
        assert self.err.startswith("clearformer: ")
        assert "Traceback" not in self.err
        return self.err.removeprefix("clearformer: ").strip()


@pytest.fixture
def clearformer(capsys, monkeypatch):
    """Run the command line in this process."""
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments):
        capsys.readouterr()
        code = 0
        try:
            main(arguments)
        except SystemExit as leaving:
            code = leaving.code or 0
        return Outcome(code, *capsys.readouterr())

    return run
