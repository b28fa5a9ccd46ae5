"""Display of tokens: everything visible, nothing interpreted."""

from clearformer.explore.token_display import (
    characters,
    token_bytes,
    tokens,
    visible,
    vocabulary_items,
)
from clearformer.explore.traced_model import TracedModel
from clearformer.text import BytePairs, Bytes


def test_invisible_characters_are_shown():
    assert visible("a b\n\t") == "a·b⏎⇥"
    assert visible("\x00\u202e\u2028") == "\\x00\\u{202E}\\u{2028}"
    assert visible("</script><b>") == "</script><b>"  # text it is, and text it stays


def test_partial_bytes_are_shown_individually():
    model = TracedModel(None, tokenizer=Bytes())
    rows = tokens(model, [*"é ".encode()])
    assert [row["display"] for row in rows] == ["\\xC3", "\\xA9", "·"]
    assert [row["text"] for row in rows] == ["\ufffd", "\ufffd", " "]


def test_token_bytes_of_byte_pairs():
    tokenizer = BytePairs.train(["été été the the the"] * 5, 300)
    text = "the été 💧\n"
    ids = tokenizer.encode(text).tolist()
    assert b"".join(token_bytes(tokenizer, each) for each in ids) == text.encode()
    shown = "".join(row["display"] for row in tokens(TracedModel(None, tokenizer=tokenizer), ids))
    assert shown.startswith("the·")
    assert "\\xF0" in shown
    assert shown.endswith("⏎")


def test_tokens_are_numbered_from_their_first_position():
    rows = tokens(TracedModel(None), [5, 6, 7], first=8)
    assert [(row["i"], row["id"], row["text"]) for row in rows] == [
        (8, 5, "5"), (9, 6, "6"), (10, 7, "7"),
    ]  # fmt: skip
    assert vocabulary_items(TracedModel(None), iter([3])) == [
        {"id": 3, "text": "3", "display": "3"}
    ]


def test_special_tokens_are_marked(loaded):
    model = loaded("bert").model
    rows = tokens(model, [model.tokenizer.mask, model.tokenizer.encode("cat").item()])
    assert [row["special"] for row in rows] == [True, False]


def test_continuation_pieces_are_marked(loaded):
    def joined(model, text):
        ids = [*model.tokenizer.prefix_ids, *model.tokenizer.encode(text).tolist()]
        rows = tokens(model, ids)
        return [row["text"] for row in rows], [row["joined"] for row in rows]

    assert joined(TracedModel(None, tokenizer=Bytes()), "ab c!d") == (
        [*"ab c!d"], [False, True, False, False, False, False],
    )  # fmt: skip
    for name, expected in {
        "bert": ["[CLS]", "the", "cats", "sat", ",", "sevenfold"],
        "gpt2": ["the", "cats", "sat", ",", "sevenfold"],
    }.items():
        texts, follows = joined(loaded(name).model, "the cats sat, sevenfold")
        assert any(follows)
        whole = []
        for text, more in zip(texts, follows, strict=True):
            whole += [whole.pop() + text.removeprefix("##")] if more else [text]
        assert [word.strip() for word in whole if word.strip()] == expected
    assert not any(joined(loaded("classifier").model, "the cats sat")[1])  # whole words


def test_start_and_end_tokens_of_a_translator_have_names(loaded):
    model = loaded("original").model
    size = model.tokenizer.size
    rows = tokens(model, [size + 1, 5, size])
    assert [row["display"] for row in rows][::2] == ["(start)", "(end)"]
    assert [row["special"] for row in rows] == [True, False, True]
    # A tokenizer whose ids end at 255.
    plain = TracedModel(None, model.config, Bytes(), generation=model.generation)
    assert [row["display"] for row in tokens(plain, [97, size])] == ["a", "(end)"]


def test_bytes_are_those_of_the_token(loaded):
    """A byte inside an emoji is not the three bytes of a replacement character."""
    model = loaded("modern").model
    ids = model.tokenizer.encode("a😀").tolist()
    assert [row["bytes"] for row in tokens(model, ids)] == ["61", "F0", "9F", "98", "80"]
    assert tokens(loaded("bert").model, [loaded("bert").model.tokenizer.mask])[0]["bytes"] is None


def test_characters_are_counted_not_tokens(loaded):
    model = loaded("modern").model
    assert characters(model, model.tokenizer.encode("猫" * 20).tolist()) == 20
    assert characters(model, model.tokenizer.encode("cat").tolist()) == 2  # all but the first
    assert characters(TracedModel(None), [1, 2]) == 0
