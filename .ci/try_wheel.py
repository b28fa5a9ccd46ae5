"""Test a built wheel in an empty environment: `python .ci/try_wheel.py dist/clearformer-*.whl`.

The wheel is installed into an empty environment outside the repository. The packages that it
depends on are those of the running interpreter, so that torch is not downloaded a second time; the
repository itself is not importable there.
"""

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import urllib.request
import zipfile
from pathlib import Path

TEXT = "The cat sat on the mat. The dog lay on the rug. Neither of them said a word.\n" * 200
SMALL = "--steps 3 --batch-size 2 --evaluations 1 --compile off --threads 1 --quiet"

# The front door, and that it writes what the command writes.
FROM_PYTHON = """
import subprocess, sys, clearformer as cf
model = cf.load("run")
text = model.generate("The ", max_tokens=8)
print(model.embed(["a", "b"]).shape, model.trace("The cat").weights(layer=0, head=0).shape)
words = ["generate", "run", "The ", "--max-tokens", "8", "--quiet"]
shown = subprocess.run([f"{sys.prefix}/bin/clearformer", *words], capture_output=True)
print(shown.stdout.decode() == f"The {text}\\n")
"""


def check_contents(wheel: Path) -> None:
    """The wheel holds the package and its licences, and no tests."""
    names = zipfile.ZipFile(wheel).namelist()
    folders = {name.split("/")[0] for name in names}
    information = f"clearformer-{wheel.name.split('-')[1]}.dist-info"
    expect(folders == {"clearformer", information}, f"the wheel holds {sorted(folders)}")
    leftovers = [name for name in names if re.search(r"(^|/)(tests?|test_\w+)(/|\.py$)", name)]
    expect(not leftovers, f"the wheel holds tests: {leftovers[:3]}")
    for needed in (
        "clearformer/py.typed",
        "clearformer/explore/static/explorer.js",
        "clearformer/explore/static/LICENSES.txt",
        f"{information}/licenses/LICENSE",
        f"{information}/licenses/src/clearformer/explore/static/LICENSES.txt",
    ):
        expect(needed in names, f"the wheel has no {needed}")


def install(wheel: Path, folder: Path) -> Path:
    """An environment with this wheel, and the dependencies of the running interpreter."""
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    # Paths that a .pth file adds are not searched for further .pth files, such as the one of an
    # editable install.
    packages = next((environment / "lib").glob("python*/site-packages"))
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment / "bin"


def run(command: Path, *words: str, folder: Path) -> str:
    done = subprocess.run(
        [command, *words], cwd=folder, env=clean(), capture_output=True, text=True, timeout=300
    )
    expect(done.returncode == 0, f"{' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    print(f"{command.name} {' '.join(words)[:70]}: fine")
    return done.stdout


def clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def check_explorer(command: Path, folder: Path) -> None:
    """`clearformer explore` serves its page, its script and the models of the run."""
    words = [command, "explore", "run", "--no-browser"]
    with subprocess.Popen(
        words, cwd=folder, env=clean(), stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            address = re.search(r"http://\S+/", server.stdout.readline())[0]
            for path, content in (
                ("", b"<html"),
                ("static/explorer.js", b"="),
                ("api/models", b"run"),
            ):
                with urllib.request.urlopen(address + path, timeout=120) as answer:
                    expect(content in answer.read(), f"/{path} of the explorer has no {content!r}")
        finally:
            server.send_signal(signal.SIGINT)
            server.stdout.read()  # until it has ended, so that it can say so
    print("clearformer explore: serves its page")


def expect(holds: bool, otherwise: str) -> None:
    if not holds:
        sys.exit(f"try_wheel: {otherwise}")


def main(wheel: Path) -> None:
    check_contents(wheel)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = install(wheel, folder)
        command = programs / "clearformer"
        place = run(
            programs / "python",
            "-c",
            "import clearformer; print(clearformer.__file__)",
            folder=folder,
        )
        expect(place.startswith(str(folder.resolve())), f"imported {place} instead of the wheel")
        version = run(command, "--version", folder=folder).strip()
        expect(version == f"clearformer {wheel.name.split('-')[1]}", f"--version says {version}")
        (folder / "my.txt").write_text(TEXT)
        run(command, "train", "--data", "my.txt", "--out", "run", *SMALL.split(), folder=folder)
        expect(
            run(command, "generate", "run", "The ", "--max-tokens", "8", folder=folder) != "",
            "no text",
        )
        written = run(programs / "python", "-c", FROM_PYTHON, folder=folder)
        expect(written.strip().endswith("True"), f"Python and the command line differ: {written}")
        goals = run(command, "selftest", "--only", "G11,G16", "--json", folder=folder).splitlines()
        expect(
            len([json.loads(line) for line in goals]) >= 2, "selftest lists fewer goals than asked"
        )
        check_explorer(command, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
