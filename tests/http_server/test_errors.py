"""One shape for everything that can go wrong."""

from clearformer.http_server import errors


def test_a_problem_is_a_code_a_sentence_and_what_to_do():
    found = errors.too_long(812, 512, raise_to=1024)
    assert found.status == 413
    assert found.body == {
        "error": {
            "code": "too_long",
            "message": "812 tokens, limit 512",
            "hint": "shorten the text or start with --max-tokens 1024",
            "limit": 512,
        }
    }


def test_names_of_others_are_cut_and_quoted():
    assert errors.unknown("model", "x" * 1000).body["error"]["message"].count("x") == 80
    assert errors.bad_field("i", "no").body["error"]["field"] == "i"
    assert errors.wrong_kind("no").status == 409
