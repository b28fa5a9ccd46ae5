"""Claims about classifying, positions, generating and the design: chapters 6 to 9 (see claims.py).

What takes hours is not run by a chapter: such claims quote docs/results.md, and their command is
the one that measures it.
"""

import re
from pathlib import Path

from claim import (
    IN_PART,
    NOT_HERE,
    REFUTED,
    Claim,
    Judged,
    Names,
    not_tried,
    span,
    verdict,
)

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results.md"


def recorded(pattern: str) -> float:
    """A number of docs/results.md, where `pattern` finds it."""
    found = re.search(pattern, RESULTS.read_text(encoding="utf-8"))
    assert found is not None, pattern
    return float(found[1])


def last_cell(row: str) -> float:
    """The last number of a row of a table of docs/results.md."""
    return recorded(rf"\| {row}[^\n]*\| \**([\d.]+) ?%?\**[^|\n]*\|\n")


def minutes(row: str) -> float:
    """The third cell of such a row."""
    return recorded(rf"\| {row}[^|\n]*\|[^|\n]*\| ([\d.]+) \|")


# --- chapter 6 -----------------------------------------------------------------------------

SEED_ROW, LSTM_ROW = "the seed's shape", "an LSTM, one layer"
HALF = "of half of the official test"


def shuffled_words(names: Names) -> Judged:
    result = (
        f"without positions the logits change by {names['invariant']:.0e}, with them by "
        f"{names['sensitive']:.2f}"
    )
    return result, verdict(names["invariant"] <= 1e-12 and names["sensitive"] > 1e-3)


def order_matters(names: Names) -> Judged:
    without = names["accuracies"]["both ways, no positions, mean"]
    placed = names["accuracies"]["both ways, mean"]
    result = (
        f"made reviews whose label depends on the order, 3 seeds: {span(without, '.1%')} without "
        f"positions (bag of words: {names['ceiling']:.1%}), {span(placed, '.1%')} with them"
    )
    return result, verdict(min(placed) > 0.95 and max(without) < 0.85)


def accuracy_of_the_seed(names: Names) -> Judged:
    found = last_cell(SEED_ROW)
    result = f"{found} % {HALF} after {minutes(SEED_ROW):.0f} minutes on one core, one seed"
    return result, verdict(84 <= found <= 87)


def competitive_with_rnn(names: Names) -> Judged:
    seed, lstm = last_cell(SEED_ROW), last_cell(LSTM_ROW)
    mine = names["accuracies"]["both ways, mean"]
    rnn = names["accuracies"]["LSTM, both ways, mean"]
    result = (
        f"IMDb ({HALF}): {seed} %, an LSTM {lstm} %; made reviews, 3 seeds: {span(mine, '.1%')} "
        f"and {span(rnn, '.1%')}"
    )
    return result, verdict(min(mine) > min(rnn) - 0.03, seed >= lstm)


def faster_than_rnn(names: Names) -> Judged:
    result = (
        f"IMDb on one CPU core: {minutes(SEED_ROW):.0f} minutes for {last_cell(SEED_ROW)} %, an "
        f"LSTM {minutes(LSTM_ROW):.0f} minutes for {last_cell(LSTM_ROW)} %; a GPU was not tried"
    )
    beaten = minutes(LSTM_ROW) < minutes(SEED_ROW) and last_cell(LSTM_ROW) > last_cell(SEED_ROW)
    return result, REFUTED if beaten else NOT_HERE


def deeper_on_more_data(names: Names) -> Judged:
    tuned = recorded(r"\*\*([\d.]+) %\*\* of the\n12,500 test texts, evaluated once \(target: 91")
    result = (
        f"much more data: {tuned} % {HALF} when fine-tuned from a pretrained model (all-MiniLM-L6)"
        f", from scratch {last_cell(SEED_ROW)} %; much deeper: no, both have 6 layers"
    )
    return result, IN_PART if tuned > last_cell(SEED_ROW) else NOT_HERE


# --- chapter 7 -----------------------------------------------------------------------------

TRAINED, BEYOND = "16 to 32", "64 to 192"


def untrained_rows(names: Names) -> Judged:
    learned = names["beyond"]["learned embeddings"]
    below, above = names["touched"][: names["TRAINED"]], names["touched"][names["TRAINED"] :]
    result = (
        f"trained with 32 places, 3 seeds: training moves their vectors by at least "
        f"{float(below.min()):.2f}, later ones by {float(above.max()):.0f}; "
        f"{span(learned[TRAINED])} bits per byte there, {span(learned[BEYOND])} beyond"
    )
    worse = min(learned[BEYOND]) > max(learned[TRAINED]) + 0.2
    return result, verdict(float(above.max()) == 0 and worse)


def embeddings_work_well(names: Names) -> Judged:
    found = {name: bins[TRAINED] for name, bins in names["beyond"].items()}
    best = min(found, key=lambda name: sum(found[name]))
    result = (
        f"within the trained length, 3 seeds: {span(found['learned embeddings'])} bits per byte, "
        f"without positions {span(found['none'])}; but {best} {span(found[best])}"
    )
    learned = found["learned embeddings"]
    return result, verdict(
        max(learned) < min(found["none"]) - 0.05, max(learned) < min(found[best]) + 0.1
    )


def encodings_beyond(names: Names) -> Judged:
    sines = names["beyond"]["sine encodings"]
    result = (
        f"trained with 32 places, 3 seeds: {span(sines[TRAINED])} bits per byte there, "
        f"{span(sines[BEYOND])} at places 64 to 192: it runs, and does not perform well"
    )
    return result, verdict(max(sines[BEYOND]) < 8, min(sines[BEYOND]) > max(sines[TRAINED]) + 0.2)


# --- chapter 8 -----------------------------------------------------------------------------


def rnns_need_no_mask(names: Names) -> Judged:
    ahead = names["ahead"]["LSTM"]
    return f"LSTM: a later input changes an output by {ahead:.0e}", verdict(ahead < 1e-9)


def vacuously_easy(names: Names) -> Judged:
    leaks = names["leaks"]
    result = (
        f"250 steps, 3 seeds: {span(leaks['no mask'])} bits per byte without a mask, "
        f"{span(leaks['masked'])} with it"
    )
    return result, verdict(max(leaks["no mask"]) < 0.5 * min(leaks["masked"]))


def no_longer_forward(names: Names) -> Judged:
    masked, open_ = names["ahead"]["transformer, masked"], names["ahead"]["transformer, no mask"]
    result = (
        f"weights above the diagonal are {names['above']:.0f}; a later input changes an output by "
        f"{masked:.0e}, without the mask by {open_:.0e}"
    )
    return result, verdict(masked < 1e-9 < open_ and names["above"] == 0)


def enwik8_characters(names: Names) -> Judged:
    count = recorded(r"100,000,000 bytes, which are ([\d]+) characters")
    result = f"10⁸ bytes; decoded as UTF-8 they are {count:,.0f} characters"
    return result, REFUTED if count != 1e8 else verdict(True)


def faster_training(names: Names) -> Judged:
    seed = last_cell("the seed's design, Adam")
    lstm = last_cell("an LSTM of two layers")
    result = (
        f"enwik8, 20 minutes on one CPU core each, as many parameters: {seed} bits per byte, an "
        f"LSTM {lstm}; a GPU was not tried"
    )
    return result, verdict(seed < lstm)


def better_coherence(names: Names) -> Judged:
    far = {name: found[:, -16:].mean(dim=1) for name, found in names["coherence"].items()}
    mine, lstm = far["transformer"], far["LSTM"]
    result = (
        f"made texts with known subjects, 3 seeds: 40 to 56 words after the prompt "
        f"{float(mine.min()):.0%} to {float(mine.max()):.0%} of the words are on the subject, an "
        f"LSTM's {float(lstm.min()):.0%} to {float(lstm.max()):.0%}"
    )
    return result, verdict(float(mine.min()) > float(lstm.max()) + 0.02)


# --- chapter 9 -----------------------------------------------------------------------------


def sequence_costs(names: Names) -> Judged:
    ratios = [each["sequential"] for each in names["step_times"].values()]
    result = (
        f"one CPU thread, 16 to 1,024 tokens: an LSTM's steps one after the other take "
        f"{span(ratios, '.1f')} times as long as the same products at once"
    )
    return result, verdict(max(ratios) > 1.5)


def ratio(names: Names, slow: str, fast: str) -> list[float]:
    return [each[slow] / each[fast] for each in names["step_times"].values()]


def convolutions_are_faster(names: Names) -> Judged:
    ratios = ratio(names, "LSTM", "convolution")
    result = f"16 to 1,024 tokens: an LSTM takes {span(ratios, '.1f')} times as long"
    return result, verdict(ratios[-1] > 2)


def efficient_feedforward(names: Names) -> Judged:
    ratios = ratio(names, "attention", "LSTM")
    result = (
        f"one CPU thread: attention takes {ratios[0]:.1f} times as long as an LSTM with 16 tokens, "
        f"{ratios[-1]:.1f} times with 1,024"
    )
    return result, verdict(ratios[0] < 1, ratios[-1] < 1)


def kernel_reach(names: Names) -> Judged:
    reach = names["reach"][1]
    result = f"kernel of 3: the farthest input that an output depends on is {reach} places away"
    return result, verdict(reach == 2)


def accuracy_in(names: Names, task: str, size: int, name: str) -> list[float]:
    return [accuracy for _, accuracy, _ in names["contest"][task, size, name]]


def stack_many(names: Names) -> Judged:
    near, far = (accuracy_in(names, "copy", size, "convolution") for size in (4, 64))
    reach = names["reach"]
    result = (
        f"{reach[1]}, {reach[2]}, {reach[4]} and {reach[8]} places with 1, 2, 4 and 8 layers of "
        f"kernel 3; copying by 4 layers of kernel 4, 3 seeds: {span(near, '.0%')} at distance 4, "
        f"{span(far, '.0%')} at 64 (chance 12 %)"
    )
    linear = all(each == 2 * depth for depth, each in reach.items())
    return result, verdict(linear and min(near) > 0.9 and max(far) < 0.3)


def just_as_easily(names: Names) -> Judged:
    accuracies = accuracy_in(names, "copy", 64, "attention")
    near, far = names["speeds"][4], names["speeds"][64]
    lstm, convolution = (accuracy_in(names, "copy", 64, name) for name in ("LSTM", "convolution"))
    result = (
        f"copying, 3 seeds: {span(accuracies, '.0%')} at distance 64 (LSTM {span(lstm, '.0%')}, "
        f"convolution {span(convolution, '.0%')}); learned after {span(far, 'd')} steps, at "
        f"distance 4 after {span(near, 'd')}"
    )
    only = min(accuracies) > 0.9 and max(*lstm, *convolution) < 0.5
    return result, verdict(only, max(far) <= 1.5 * min(near))


def cannot_tell(names: Names) -> Judged:
    result = f"moving a token over 62 places changes the last output by {names['unmoved']:.0e}"
    return result, verdict(names["unmoved"] <= 1e-12)


def two_nonlinearities(names: Names) -> Judged:
    bends = names["bends"]
    result = (
        f"4 blocks without norms, both frozen: {bends['both frozen']:.0e} from a linear map, as "
        f"they are {bends['as it is']:.1f}"
    )
    return result, verdict(bends["both frozen"] < 1e-9 < bends["as it is"])


def preserved_gradient(names: Names) -> Judged:
    drawn = names["gradients"]["24 linear layers"]
    kept = names["gradients"]["24 orthogonal layers"]
    result = (
        f"through 24 linear layers as torch draws them the gradient shrinks to "
        f"{span(drawn, '.1e')} of its length (3 seeds); {span(kept, '.2f')} if they are orthogonal"
    )
    return result, REFUTED if max(drawn) < 0.01 else verdict(False)


def stable_gradient(names: Names) -> Judged:
    without = names["gradients"]["24 blocks without norms"]
    normed = names["gradients"]["24 blocks with layer norm"]
    result = (
        f"24 blocks at initialization, 3 seeds: from last to first block the gradient changes by a "
        f"factor of {span(normed, '.1f')} with norms, {span(without, '.0e')} without"
    )
    return result, verdict(min(normed) > 0.01 and max(normed) < 100 < min(without))


def softened_store(names: Names) -> Judged:
    first, last = names["softness"][0], names["softness"][-1]
    result = (
        f"5 items: the soft answer differs from the dictionary's by {first:.2f} at sharpness 1/4, "
        f"by {last:.0e} at 128"
    )
    return result, verdict(last < 1e-6 < first)


def sufficient_nonlinearity(names: Names) -> Judged:
    xor = names["xor"]
    one, several = xor["attention alone", 1], xor["attention alone", 8]
    both = xor["with feed-forward", 1]
    result = (
        f"exclusive or inside one token, 3 seeds: attention alone {span(one, '.0%')} with one "
        f"token, {span(several, '.0%')} with seven others beside it; with feed-forward layers "
        f"{span(both, '.0%')}"
    )
    return result, verdict(min(several) > 0.9, min(one) > 0.9)


CLASSIFY, POOLING = "Classification transformer", "Output: producing a classification"
PLACES, GENERATE = "Input: using the positions", "Text generation transformer"
DESIGN, NAME = "Design considerations", "Why is it called self-attention?"
IMDB = "CLEARFORMER_DATA=... python benchmarks/imdb.py --only seed,lstm"
ENWIK8 = "CLEARFORMER_DATA=... python benchmarks/enwik8.py --minutes 20 --only seed,lstm"
GPU_DAY = "clearformer train generator-enwik8 --data enwik8 --batch-size 32 --steps 170000"


def untried_day(names: Names) -> Judged:
    found = last_cell("the seed's design, Adam")
    return not_tried(
        f"it takes a day on a GPU; 20 minutes on one CPU core with batches of 4 give {found}"
    )(names)


CLAIMS = (
    Claim(
        6, "the most common way [...] is to apply global average pooling", POOLING,
        not_tried("a sentence about usage: how well it works is compared, not how common it is"),
        command="CLEARFORMER_DATA=... python benchmarks/imdb_masks.py",
    ),
    Claim(
        6, "if we shuffle up the words in the sentence, we get the exact same classification",
        PLACES, shuffled_words,
    ),
    Claim(6, "we want [...] at least some sensitivity to word order", PLACES, order_matters),
    Claim(
        6, "at depth 6, with a maximum sequence length of 512, [...] about 85%", CLASSIFY,
        accuracy_of_the_seed, command=IMDB,
    ),
    Claim(
        6, "competitive with results from RNN models", CLASSIFY, competitive_with_rnn, command=IMDB,
    ),
    Claim(
        6, "[than RNN models] much faster to train", CLASSIFY, faster_than_rnn, command=IMDB,
    ),
    Claim(
        6, "to see the real near-human performance [...] a much deeper model on much more data",
        CLASSIFY, deeper_on_more_data,
        command="clearformer train classify --from runs/minilm --data imdb",
    ),
    Claim(
        7, "we have to see sequences of every length [...], otherwise [they] don't get trained",
        PLACES, untrained_rows,
    ),
    Claim(7, "[position embeddings work] pretty well", PLACES, embeddings_work_well),
    Claim(
        7, "able to deal with sequences that are longer [...] (it's unlikely to perform well)",
        PLACES, encodings_beyond,
    ),
    Claim(8, "RNNs [...] cannot look forward into the input sequence", GENERATE, rnns_need_no_mask),
    Claim(8, "prediction of the next character becomes vacuously easy", GENERATE, vacuously_easy),
    Claim(8, "the model can no longer look forward in the sequence", GENERATE, no_longer_forward),
    Claim(
        8, "enwik8 [...] contains 10⁸ characters of Wikipedia text", GENERATE, enwik8_characters,
        command="zcat $CLEARFORMER_DATA/enwik8.gz \\| wc --bytes --chars",
    ),
    Claim(
        8, "a compression of 1.343 bits per byte [...] after about 24 hours", GENERATE, untried_day,
        command=GPU_DAY,
    ),
    Claim(
        8, "not too far off the state of the art of 0.93 bits per byte", GENERATE,
        not_tried("GPT-2's largest model does not run here, and the tasks differ (erratum 10)"),
        command=GPU_DAY,
    ),
    Claim(
        8, "[over a similar RNN model] faster training", GENERATE, faster_training, command=ENWIK8,
    ),
    Claim(8, "[over a similar RNN model] better long-term coherence", GENERATE, better_coherence),
    Claim(
        9, "the big weakness here is the recurrent connection",
        DESIGN, sequence_costs, timed=True,
    ),
    Claim(
        9, "[computing outputs in parallel] makes convolutions much faster", DESIGN,
        convolutions_are_faster, timed=True,
    ),
    Claim(
        9, "only words that are closer together than the kernel size can interact", DESIGN,
        kernel_reach,
    ),
    Claim(9, "for longer dependence we need to stack many convolutions", DESIGN, stack_many),
    Claim(
        9, "dependencies over the whole range [...] just as easily as [...] next to each other",
        DESIGN, just_as_easily,
    ),
    Claim(
        9, "without the position vectors, they can't even tell the difference", DESIGN, cannot_tell,
    ),
    Claim(
        9, "no recurrent connections, so [...] a very efficient feedforward fashion", DESIGN,
        efficient_feedforward, timed=True,
    ),
    Claim(
        9, "only two places in the transformer where non-linearities occur", DESIGN,
        two_nonlinearities,
    ),
    Claim(
        9, "linear transformations, which perfectly preserve the gradient", DESIGN,
        preserved_gradient,
    ),
    Claim(
        9, "layer normalization [...] helps to keep the gradient stable", DESIGN, stable_gradient,
    ),
    Claim(9, "attention is a softened version of [a key-value store]", NAME, softened_store),
    Claim(
        9, "stacking such self-attention provides sufficient nonlinearity", NAME,
        sufficient_nonlinearity,
    ),
)  # fmt: skip
