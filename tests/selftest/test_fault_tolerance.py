"""G1, G3, G4, G6 and G14 in their smallest dose (G2 is tests/reliability)."""

from clearformer.selftest.goals import attempt


def reached(goal):
    result = attempt(goal, "test")
    assert result.outcome == "reached", result.found


def test_f1_g1_a_killed_run_is_the_same_run():
    reached("G1")


def test_f12_g3_stops_around_an_epoch_change_nothing():
    reached("G3")


def test_f27_g4_a_signal_saves_and_leaves_with_its_code():
    reached("G4")


def test_f4_g6_a_full_disk_leaves_the_old_checkpoint():
    reached("G6")


def test_g14_no_number_stops_a_run():
    reached("G14")
