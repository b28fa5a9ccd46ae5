"""Tokens as they are shown: everything is visible, nothing acts."""

from clearformer.explore.subject import Subject
from clearformer.explore.words import raw, tokens, visible, words
from clearformer.text import BytePairs, Bytes


def test_what_cannot_be_seen_is_shown():
    assert visible("a b\n\t") == "a·b⏎⇥"
    assert visible("\x00\u202e\u2028") == "\\x00\\u{202E}\\u{2028}"
    assert visible("</script><b>") == "</script><b>"  # text it is, and text it stays


def test_bytes_of_a_character_are_shown_one_by_one():
    subject = Subject(None, tokenizer=Bytes())
    rows = tokens(subject, [*"é ".encode()])
    assert [row["display"] for row in rows] == ["\\xC3", "\\xA9", "·"]
    assert [row["text"] for row in rows] == ["\ufffd", "\ufffd", " "]


def test_pieces_of_byte_pairs_are_their_bytes():
    tokenizer = BytePairs.train(["été été the the the"] * 5, 300)
    text = "the été 💧\n"
    ids = tokenizer.encode(text).tolist()
    assert b"".join(raw(tokenizer, each) for each in ids) == text.encode()
    shown = "".join(row["display"] for row in tokens(Subject(None, tokenizer=tokenizer), ids))
    assert shown.startswith("the·")
    assert "\\xF0" in shown
    assert shown.endswith("⏎")


def test_tokens_of_a_memory_have_numbers_below_zero():
    rows = tokens(Subject(None), [5, 6, 7], first=-2)
    assert [(row["i"], row["id"], row["text"]) for row in rows] == [
        (-2, 5, "5"), (-1, 6, "6"), (0, 7, "7"),
    ]  # fmt: skip
    assert words(Subject(None), iter([3])) == [{"id": 3, "text": "3", "display": "3"}]


def test_marks_are_special(opened):
    subject = opened("bert").subject
    rows = tokens(subject, [subject.tokenizer.mask, subject.tokenizer.encode("cat").item()])
    assert [row["special"] for row in rows] == [True, False]
