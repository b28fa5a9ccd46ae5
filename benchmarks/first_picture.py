"""Time until the explorer shows its first picture of a model with 12 layers and 12 heads.

    python benchmarks/first_picture.py [--tokens 64] [--rounds 5]

A model of GPT-2 small's shape with random weights, over bytes, is written as a run; `clearformer
explore` opens it as a user would, and a headless Chromium (Debian's `chromium`) loads the page.
Counted from the moment the address is entered until the steps for one query and all heads are
drawn; the first time the server also reads the weights. Needs playwright (the extra `dev`).
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import sync_playwright

from clearformer.builder import build
from clearformer.config import GenerationDefaults
from clearformer.families import gpt2
from clearformer.hub.importing import Imported
from clearformer.hub.write_run import write_run
from clearformer.runs import state
from clearformer.text import Bytes

DRAWN = "table.ladder tbody td[data-stage=weights]"
HEADS = "[data-source$='/thumbs'] canvas"


def write(out: Path) -> Path:
    config = replace(gpt2("small"), vocabulary=256)
    weights = state.weights(build(config))
    return write_run(
        Imported("random weights", config, GenerationDefaults(), Bytes(), weights, notes=()), out
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("needs Chromium: apt install chromium")
    text = ("the quick brown fox jumps over the lazy dog and " * 40)[: asked.tokens]
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        run = write(Path(place) / "run")
        words = [sys.executable, "-m", "clearformer", "explore", str(run), "--no-browser"]
        server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found is not None
        flags = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        for number in range(asked.rounds):
            page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
            began = time.perf_counter()
            page.goto(f"{found[0]}#{urlencode({'text': f'{text[:-1]}{number}'})}")
            page.wait_for_selector(DRAWN)
            steps = time.perf_counter() - began
            page.wait_for_selector(HEADS)
            heads = time.perf_counter() - began
            size = page.locator(HEADS).count()
            print(
                f"{asked.tokens} tokens: steps for one query after {steps:.2f} s, "
                f"all {size} heads after {heads:.2f} s",
                flush=True,
            )
            page.context.close()
        browser.close()
        server.kill()


if __name__ == "__main__":
    main()
