"""Tiny models of transformers with adapters of PEFT, and the runs of their bases."""

import warnings

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model

from clearformer.hub.importing import import_checkpoint
from clearformer.hub.write_run import write_run

SIZES = {
    "vocab_size": 256, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": 32,
}  # fmt: skip
MODELS = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=256, n_embd=16, n_layer=2, n_head=2, n_positions=32)
    ),
    "llama": lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**SIZES, num_key_value_heads=1)
    ),
    "qwen2": lambda: transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(**SIZES, num_key_value_heads=1)
    ),
    "bert": lambda: transformers.BertForSequenceClassification(
        transformers.BertConfig(**SIZES, num_labels=3)
    ),
    "marian": lambda: transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=256,
            d_model=16,
            encoder_layers=2,
            decoder_layers=1,
            decoder_ffn_dim=24,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=24,
            max_position_embeddings=32,
            pad_token_id=255,
            decoder_start_token_id=255,
            eos_token_id=254,
            forced_eos_token_id=254,
            decoder_vocab_size=256,
            bad_words_ids=[[255]],
        )
    ),
}
TARGETS = {
    "gpt2": ["c_attn", "c_fc"],
    "llama": ["q_proj", "v_proj", "gate_proj", "down_proj"],
    "qwen2": ["k_proj", "o_proj", "up_proj"],
    "bert": ["query", "value", "output.dense"],
    "marian": ["q_proj", "v_proj", "fc1"],
}
IDS = torch.tensor([[72, 101, 108, 108, 111, 32, 116, 104], [1, 2, 3, 4, 5, 6, 7, 8]])


def theirs(kind):
    """A model of transformers with drawn weights, in evaluation mode."""
    torch.manual_seed(0)
    model = MODELS[kind]()
    with torch.no_grad():
        for parameter in filter(lambda p: p.requires_grad, model.parameters()):  # no row is zero
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model.eval()


def base_run(kind, folder):
    """The same model as a run of ours."""
    theirs(kind).save_pretrained(folder / "hf")
    imported = import_checkpoint(folder / "hf", tokenizer="bytes")
    return write_run(imported, folder / "base")


def saved_adapter(kind, folder, **settings):
    """An adapter of PEFT with drawn weights in a folder; its model."""
    settings = {"r": 3, "lora_alpha": 5, "target_modules": TARGETS[kind], **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = get_peft_model(
            theirs(kind), LoraConfig(fan_in_fan_out=kind == "gpt2", **settings)
        ).eval()
        torch.manual_seed(1)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_" in name or "modules_to_save" in name:
                    parameter.add_(0.2 * torch.randn_like(parameter))
        model.save_pretrained(folder)
    return model


def opened_by_peft(kind, folder):
    """A folder of PEFT, opened by PEFT itself without a missing tensor."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        return PeftModel.from_pretrained(theirs(kind), folder).eval()


def inputs(model):
    """Ids for a model of theirs or of ours: a translator also reads a target."""
    stacks = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    return (IDS, IDS.flip(1)) if "decoder" in stacks else (IDS,)


def logits(model):
    with torch.no_grad():
        given = inputs(model)
        if len(given) == 2:
            return model(input_ids=given[0], decoder_input_ids=given[1]).logits
        return model(IDS).logits


def ours(model):
    """The logits of a model of ours for the same ids."""
    with torch.no_grad():
        return model(*inputs(model))
