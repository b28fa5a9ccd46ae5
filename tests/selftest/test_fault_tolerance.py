"""G1, G3, G4, G6 and G14 in their smallest dose (G2 is tests/reliability)."""

from clearformer.selftest.goals import attempt


def reached(goal):
    result = attempt(goal, "test")
    assert result.outcome == "reached", result.found


def test_f1_g1_killed_run_resumes_identically():
    reached("G1")


def test_f12_g3_stops_around_an_epoch_do_not_change_run():
    reached("G3")


def test_f27_g4_signal_saves_and_sets_exit_code():
    reached("G4")


def test_f4_g6_full_disk_keeps_old_checkpoint():
    reached("G6")


def test_g14_nan_stops_run():
    reached("G14")
