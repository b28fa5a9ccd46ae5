"""Fixtures: tiny random checkpoints of the reference implementation, on disk."""

import importlib.util
import json
import random
from pathlib import Path

import pytest
import torch

from clearformer.text import BytePairs, WordPieces

SIZES = {"layers": 2, "width": 16, "heads": 4, "hidden": 24, "length": 32}
GPT2 = {"n_layer": 2, "n_embd": 16, "n_head": 4, "n_inner": 24, "n_positions": 32}
BERT = {
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
}
TURNING = {"rope_type": "default", "rope_theta": 500.0}
SCALED = {
    "rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
}  # fmt: skip
NONE = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
GROUPED = {**BERT, **NONE, "num_key_value_heads": 2}
THREE = {"id2label": {0: "bad", 1: "fair", 2: "good"}}
MODEL_TYPES = {0: "O", 1: "B-PER", 2: "I-PER"}
# name: (their class, its config, settings)
MODELS = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {**GPT2, **NONE}),
    "gpt2-untied": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {**GPT2, **NONE, "tie_word_embeddings": False},
    ),
    "bert": ("BertForPreTraining", "BertConfig", BERT),
    "bert-masked": ("BertForMaskedLM", "BertConfig", BERT),
    "bert-features": ("BertModel", "BertConfig", BERT),
    "bert-classes": ("BertForSequenceClassification", "BertConfig", {**BERT, "num_labels": 3}),
    "bert-tokens": ("BertForTokenClassification", "BertConfig", {**BERT, "id2label": MODEL_TYPES}),
    "bert-answers": ("BertForQuestionAnswering", "BertConfig", BERT),
    "bert-next": ("BertForNextSentencePrediction", "BertConfig", BERT),
    "bert-choices": ("BertForMultipleChoice", "BertConfig", BERT),
    "gpt2-classes": ("GPT2ForSequenceClassification", "GPT2Config", {**GPT2, **NONE, **THREE}),
    "gpt2-tokens": ("GPT2ForTokenClassification", "GPT2Config", {**GPT2, **NONE, **THREE}),
    "gpt2-answers": ("GPT2ForQuestionAnswering", "GPT2Config", {**GPT2, **NONE}),
    "llama-classes": ("LlamaForSequenceClassification", "LlamaConfig", {**GROUPED, **THREE}),
    "llama-tokens": ("LlamaForTokenClassification", "LlamaConfig", {**GROUPED, **THREE}),
    "llama-tokens-unbiased": (
        "LlamaForTokenClassification",
        "LlamaConfig",
        {**GROUPED, **THREE, "token_classification_bias": False},
    ),
    "llama-answers": ("LlamaForQuestionAnswering", "LlamaConfig", GROUPED),
    "llama-body": ("LlamaModel", "LlamaConfig", GROUPED),
    "mistral-classes": (
        "MistralForSequenceClassification",
        "MistralConfig",
        {**GROUPED, **THREE, "sliding_window": 5},
    ),
    "mistral-answers": (
        "MistralForQuestionAnswering",
        "MistralConfig",
        {**GROUPED, "sliding_window": 5},
    ),
    "qwen2-classes": ("Qwen2ForSequenceClassification", "Qwen2Config", {**GROUPED, **THREE}),
    "qwen3-classes": (
        "Qwen3ForSequenceClassification",
        "Qwen3Config",
        {**GROUPED, **THREE, "head_dim": 4},
    ),
    "llama": ("LlamaForCausalLM", "LlamaConfig", {**BERT, **NONE, "num_key_value_heads": 2}),
    "llama-biased": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {**BERT, **NONE, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    "llama-linear": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {**BERT, **NONE, "rope_parameters": {**TURNING, "rope_type": "linear", "factor": 2.5}},
    ),
    "llama-scaled": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {**BERT, **NONE, "num_key_value_heads": 2, "hidden_size": 32, "rope_parameters": SCALED},
    ),
    "mistral": (
        "MistralForCausalLM",
        "MistralConfig",
        {**BERT, **NONE, "num_key_value_heads": 1, "sliding_window": 5},
    ),
    "qwen2": (
        "Qwen2ForCausalLM",
        "Qwen2Config",
        {**BERT, **NONE, "num_key_value_heads": 2, "rope_parameters": TURNING},
    ),
    "qwen2-windows": (
        "Qwen2ForCausalLM",
        "Qwen2Config",
        {**BERT, **NONE, "num_key_value_heads": 2, "use_sliding_window": True,
         "sliding_window": 5, "max_window_layers": 1},
    ),
    "llama-wide": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {**BERT, **NONE, "num_key_value_heads": 2, "head_dim": 10, "attention_bias": True},
    ),
    "qwen3-wide": (
        "Qwen3ForCausalLM",
        "Qwen3Config",
        {**BERT, **NONE, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8},
    ),
    "qwen3": (
        "Qwen3ForCausalLM",
        "Qwen3Config",
        {**BERT, **NONE, "num_key_value_heads": 2, "head_dim": 4, "rms_norm_eps": 1e-5},
    ),
}  # fmt: skip


@pytest.fixture(scope="session")
def transformers():
    library = pytest.importorskip("transformers")
    library.utils.logging.disable_progress_bar()
    library.logging.set_verbosity_error()
    return library


@pytest.fixture(scope="session")
def texts(prose):
    """Real sentences, a few hundred."""
    return [line for line in prose.splitlines() if len(line) > 30][:200]


@pytest.fixture(scope="session")
def pairs(prose):
    return BytePairs.train([prose], 300)


@pytest.fixture(scope="session")
def pieces(prose):
    return WordPieces.train([prose], 300)


@pytest.fixture(scope="session")
def theirs(transformers, scrambled):
    """One of their models with 300 tokens, by a name of `MODELS`."""

    def make(name, vocabulary=300, **changes):
        kind, config, settings = MODELS[name]
        torch.manual_seed(1)
        built = getattr(transformers, config)(vocab_size=vocabulary, **{**settings, **changes})
        return scrambled(getattr(transformers, kind)(built)).eval()

    return make


@pytest.fixture
def folder(theirs, pairs, pieces, tmp_path):
    """One of their models as a folder with a tokenizer, as their own tools write it."""

    def write(name, place="theirs", **options):
        from clearformer.hub.tokenizer_files import write_tokenizer

        model = theirs(name)
        model.save_pretrained(tmp_path / place, **options)
        tokenizer = pieces if name.startswith("bert") else pairs
        write_tokenizer(tokenizer, tmp_path / place, 32)
        return tmp_path / place, model

    return write


@pytest.fixture
def edit():
    """Change a JSON file; None removes a key."""

    def change(path, **changes):
        data = json.loads(path.read_text())
        data = {k: v for k, v in {**data, **changes}.items() if v is not None}
        path.write_text(json.dumps(data))

    return change


@pytest.fixture
def forged():
    """A safetensors file with any header and data."""

    def write(path, header, data=b"", length=None):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        size = len(text) if length is None else length
        path.write_bytes(size.to_bytes(8, "little") + text + data)
        return path

    return write


@pytest.fixture
def tokens():
    chance = random.Random(3)
    return torch.tensor([[chance.randrange(1, 300) for _ in range(9)] for _ in range(3)])


@pytest.fixture(scope="session")
def pm():
    """Models of transformers with adapters of PEFT (peft_models.py)."""
    path = Path(__file__).with_name("peft_models.py")
    spec = importlib.util.spec_from_file_location("peft_models", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
