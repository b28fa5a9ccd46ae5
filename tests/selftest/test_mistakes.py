"""G18 in a small dose."""

from clearformer.selftest import mistakes


def test_there_are_sixty_mistakes():
    lines = mistakes.MISTAKES.splitlines()
    assert len(lines) >= 60
    assert all(" | " in line for line in lines)


def test_f41_g18_usual_mistakes_are_told_in_a_line(tmp_path):
    assert "mistakes told in one line" in mistakes.first_errors(tmp_path, every=10)
