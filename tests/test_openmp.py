"""How threads wait: set before torch is imported, unless the user decided."""

import subprocess
import sys

import pytest

from clearformer.openmp import SPIN_COUNT, wait_briefly


def test_threads_wait_briefly_unless_the_user_decided():
    environment: dict[str, str] = {}
    wait_briefly(environment)
    assert environment == {"GOMP_SPINCOUNT": SPIN_COUNT}


@pytest.mark.parametrize("name", ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY"])
def test_a_setting_of_the_user_stays(name):
    environment = {name: "7"}
    wait_briefly(environment)
    assert environment == {name: "7"}


def test_importing_the_package_sets_it_before_torch_is_imported():
    script = (
        "import os, sys; os.environ.pop('GOMP_SPINCOUNT', 0); os.environ.pop('OMP_WAIT_POLICY', 0);"
        "import clearformer; print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [SPIN_COUNT, "False"]
