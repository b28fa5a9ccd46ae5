"""G18 in a small dose."""

from clearformer.selftest import user_errors


def test_at_least_sixty_user_errors():
    lines = user_errors.MISTAKES.splitlines()
    assert len(lines) >= 60
    assert all(" | " in line for line in lines)


def test_f41_g18_user_errors_are_reported_in_one_line(tmp_path):
    assert "errors reported in one line" in user_errors.first_errors(tmp_path, every=10)
