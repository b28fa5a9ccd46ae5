"""Imported heads give the same labels, answers and classes as transformers."""

import pytest
import torch

import clearformer as cf

QUESTION, CONTEXT = "Is it so?", "The import statement finds a module."


def near(given, expected):
    torch.testing.assert_close(given, expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_label_matches_transformers(transformers, folder):
    path, theirs = folder("bert-tokens")
    found = cf.load(path).label(CONTEXT)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    words = list(found.words)
    encoded = tokenizer(words, is_split_into_words=True, return_tensors="pt")
    shares = theirs(**encoded).logits[0].softmax(-1)
    firsts = {}
    for position, word in enumerate(encoded.word_ids()):
        if word is not None:
            firsts.setdefault(word, position)
    expected = shares[[firsts[word] for word in range(len(words))]].max(-1)
    near(torch.tensor(found.probabilities), expected.values)
    names = [theirs.config.id2label[int(each)] for each in expected.indices]
    assert list(found.labels) == names


@torch.no_grad()
def test_answer_matches_transformers(transformers, folder):
    path, theirs = folder("bert-answers")
    found = cf.load(path).answer(QUESTION, CONTEXT)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    encoded = tokenizer(QUESTION, CONTEXT, return_tensors="pt")
    assert encoded["input_ids"].shape[1] <= 32, "one window"
    output = theirs(**encoded)
    inside = [n for n, part in enumerate(encoded.sequence_ids()) if part == 1]
    starts, ends = output.start_logits[0], output.end_logits[0]
    pairs = [(i, j) for i in inside for j in inside if i <= j < i + 30]
    start, end = max(pairs, key=lambda pair: float(starts[pair[0]] + ends[pair[1]]))
    chances = [each[[0, *inside]].softmax(0) for each in (starts, ends)]
    expected = chances[0][1 + inside.index(start)] * chances[1][1 + inside.index(end)]
    near(torch.tensor(found.probability), expected)
    # Ours ends with the word that holds the last token.
    first, last = encoded.token_to_chars(start).start, encoded.token_to_chars(end).end
    assert found.start <= first < last <= found.end
    assert CONTEXT[found.start : found.end] == found.text


@torch.no_grad()
def test_pair_classification_matches_transformers(transformers, folder):
    path, theirs = folder("bert-classes")
    pairs = [(QUESTION, CONTEXT), ("A", "b"), (CONTEXT * 2, "and this")]
    found = cf.load(path).classify(pairs)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    for pair, each in zip(pairs, found, strict=True):
        encoded = tokenizer(*pair, truncation="longest_first", max_length=32, return_tensors="pt")
        expected = theirs(**encoded).logits[0].softmax(-1)
        near(torch.tensor(list(each.probabilities.values())), expected)
    assert [each.cut for each in found] == [False, False, True]


@pytest.mark.parametrize(
    ("head", "form"),
    [
        ("label", "BertForTokenClassification"),
        ("answer", "BertForQuestionAnswering"),
        ("classify-pairs", "BertForSequenceClassification"),
    ],
)
def test_finetuned_heads_export_to_transformers(transformers, folder, tmp_path, head, form):
    path, _ = folder("bert")
    run = cf.load(path).save(tmp_path / "imported")
    data = {
        "label": ("a.conll", "\n".join(f"word{n} X\nhere Y\n" for n in range(20))),
        "answer": (
            "a.jsonl",
            "\n".join(
                f'{{"question": "who?", "context": "it is {n}", "answer": "{n}"}}'
                for n in range(20)
            ),
        ),
        "classify-pairs": (
            "a.csv",
            "text,second,label\n" + "\n".join(f"a{n},b{n},{'xy'[n % 2]}" for n in range(20)),
        ),
    }
    name, content = data[head]
    (tmp_path / name).write_text(content)
    model = cf.train(
        head, from_=run, data=tmp_path / name, out=tmp_path / "run", steps=2, quiet=True,
        threads=1, compile="off",
    )  # fmt: skip
    body = cf.load(path).module.state_dict()
    moved = model.module.state_dict()["stack.blocks.0.attention.project.weight"]
    assert (moved - body["stack.blocks.0.attention.project.weight"]).abs().max() < 1e-2
    done = model.export(tmp_path / "out")
    assert done.form == form
    again = getattr(transformers, form).from_pretrained(tmp_path / "out")
    assert sum(each.numel() for each in again.parameters()) >= model.parameter_count
