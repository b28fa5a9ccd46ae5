"""Error responses: code, message and hint."""

from clearformer.http_server import errors


def test_problem_has_code_message_and_hint():
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


def test_untrusted_names_are_shortened():
    assert errors.unknown("model", "x" * 1000).body["error"]["message"].count("x") == 80
    assert errors.bad_field("i", "no").body["error"]["field"] == "i"
    assert errors.wrong_kind("no").status == 409
