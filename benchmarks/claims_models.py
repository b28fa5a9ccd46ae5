"""Claims about the models after the block: chapters 10 to 16 of docs/book (see claims.py)."""

from claim import IN_PART, NOT_HERE, REFUTED, Claim, Judged, Names, not_tried, span, verdict

# --- chapter 10 ----------------------------------------------------------------------------


def forcing_helps(names: Names) -> Judged:
    right, alone = (
        [each[0] for each in names["samples"][kind]]
        for kind in ("encoder-decoder", "without its own words")
    )
    result = (
        f"4 ways to say it, 3 seeds: two samples both mean the source in {span(right, '.0%')} of "
        f"new sentences; without its own words in {span(alone, '.0%')}"
    )
    return result, verdict(min(right) > 0.5 and max(alone) < 0.25)


def two_samples(names: Names) -> Judged:
    right, differ, _ = zip(*names["samples"]["encoder-decoder"], strict=True)
    result = (
        f"3 seeds: two samples differ in {span(differ, '.0%')}, and both mean the source in "
        f"{span(right, '.0%')}"
    )
    return result, verdict(min(differ) > 0.5, min(right) > 0.5)


def one_stack_suffices(names: Names) -> Judged:
    one, two = (
        [each[0] for each in names["samples"][kind]]
        for kind in ("a single stack", "encoder-decoder")
    )
    result = (
        f"a single stack with fewer weights, 3 seeds: {span(one, '.0%')} right, the "
        f"encoder-decoder {span(two, '.0%')}"
    )
    return result, verdict(min(one) > 0.5)


def parallel_training(names: Names) -> Judged:
    return f"one pass and six passes differ by {names['in_parallel']:.0e}", verdict(
        names["in_parallel"] <= 1e-7
    )


def two_variables(names: Names) -> Judged:
    result = (
        f"the second seed's class with two inputs differs from ours by {names['difference']:.0e}"
    )
    return result, verdict(names["difference"] <= 1e-7)


# --- chapter 11 ----------------------------------------------------------------------------


def same_blocks(names: Names) -> Judged:
    result = (
        f"with ReLU and without biases of the projections the stack differs from the post's by "
        f"{names['difference']:.0e}; as published (GELU) by {names['with_gelu']:.1f}"
    )
    return result, verdict(names["difference"] <= 1e-7, names["with_gelu"] <= 1e-7)


def bert_size(names: Names) -> Judged:
    size = names["bert_large"]
    return f"{size:,} with both heads of pretraining", verdict(abs(size - 340e6) < 0.02 * 340e6)


def walking_is_split(names: Names) -> Judged:
    small, published = names["small_vocabulary"]["walking"], names["split"]
    result = (
        f"a vocabulary of 70: {' '.join(small)}; BERT's own has walking as one token, and splits "
        f"{' '.join(published['strolling'])}"
    )
    return result, REFUTED if published["walking"] == ["walking"] else verdict(True)


def bidirectional_helps(names: Names) -> Judged:
    both, causal = (names["masked_nouns"][name] for name in ("bidirectional", "causal"))
    result = (
        f"one language of 128 sentences, 3 seeds: hidden nouns found {span(both, '.0%')} with both "
        f"sides, {span(causal, '.0%')} behind a causal mask; other differences to "
        f"GPT are not compared"
    )
    return result, IN_PART if min(both) > max(causal) + 0.25 else NOT_HERE


def every_word(names: Names) -> Judged:
    bert, always = (
        names["wrong_nouns"][name] for name in ("bidirectional", "bidirectional, always [MASK]")
    )
    result = (
        f"3 seeds: a wrong noun that is shown is corrected in {span(bert, '.0%')}; if hidden words "
        f"are always [MASK], in {span(always, '.0%')}"
    )
    return result, verdict(sum(bert) / len(bert) > sum(always) / len(always) + 0.15)


def pretraining_pays(names: Names) -> Judged:
    before, scratch = (names["fine_tuned"][name] for name in ("pretrained", "from scratch"))
    result = (
        f"16 labels, 3 seeds: {span(before, '.0%')} pretrained, {span(scratch, '.0%')} from "
        f"scratch; IMDb, one seed: 87.7 % and 84.6 % (docs/results.md)"
    )
    return result, verdict(sum(before) / len(before) > sum(scratch) / len(scratch) + 0.04)


# --- chapter 12 ----------------------------------------------------------------------------


def like_the_generator(names: Names) -> Judged:
    changed = names["changed"]
    result = f"beside sizes, {len(changed)} settings differ: {', '.join(sorted(changed))}"
    return result, verdict("residual" in changed and len(changed) <= 8)


def deeper(names: Names) -> Judged:
    post, pre = (
        [float(each) for each in names["deep"][name][:, -1]]
        for name in ("post-norm", "pre-norm, 1/sqrt(2N)")
    )
    result = (
        f"16 blocks, 80 steps, best of 2 learning rates, 3 seeds: loss {span(pre)} with GPT-2's "
        f"order and draw, {span(post)} with the post's"
    )
    return result, verdict(max(pre) < 0.6 * min(post))


def gpt2_size(names: Names) -> Judged:
    return f"{names['gpt2_xl']:,}", verdict(1.5e9 <= names["gpt2_xl"] < 1.6e9)


def between_letters_and_words(names: Names) -> Judged:
    sizes = names["byte_pairs"]
    result = "; ".join(
        f"{size:,} tokens: {letters:.1f} characters each, {whole:.0%} of words are one token"
        for size, (letters, whole) in sizes.items()
    )
    letters, whole = sizes[8_000]
    return f"{result} (GPT-2 has 50,257)", verdict(letters > 1.5, whole < 0.5)


# --- chapter 13 ----------------------------------------------------------------------------


def quadratic(names: Names) -> Judged:
    entries = names["entries"]["at once"]
    result = f"8 times the tokens: {entries[-1] // entries[0]} times the entries; in segments "
    parts = names["entries"]["in segments"]
    return f"{result}{parts[-1] / parts[0]:.0f} times", verdict(entries[-1] == 64 * entries[0])


def no_gradient(names: Names) -> Judged:
    effects = [names["reaches"][layers][1] for layers in (1, 2, 3, 4)]
    gradients = [max(names["gradients"][layers][1:]) for layers in (1, 2, 3, 4)]
    result = (
        f"the segment before moves outputs by {min(effects):.0e} or more, with a gradient of "
        f"{max(gradients):.0f}"
    )
    return result, verdict(min(effects) > 0 and max(gradients) == 0)


def n_segments(names: Names) -> Judged:
    reach = {
        layers: max(back for back, effect in enumerate(found) if effect)
        for layers, found in names["reaches"].items()
    }
    shown = ", ".join(f"{back} with {layers}" for layers, back in reach.items())
    return f"segments back that still have an effect: {shown} layers", verdict(
        all(layers == back for layers, back in reach.items())
    )


def inconsistent(names: Names) -> Judged:
    found = names["consistent"]
    result = (
        f"the score of two equal tokens two places apart varies with the place by "
        f"{found['learned']:.2f} (learned) and {found['sinusoidal']:.2f} (sinusoidal), by "
        f"{found['relative']:.0e} with relative positions"
    )
    absolute = min(found["learned"], found["sinusoidal"])
    return result, verdict(absolute > 0.05 and found["relative"] < 1e-9)


def unseen_length(names: Names) -> Judged:
    last = {name: [long for _, long in runs] for name, runs in names["unseen"].items()}
    others = last["learned"] + last["sinusoidal"]
    result = (
        f"one task by distance, trained on 16 tokens, 3 seeds: at the end of 64 "
        f"{span(last['relative'], '.0%')} right, {span(others, '.0%')} with absolute positions"
    )
    return result, verdict(min(last["relative"]) > max(others) + 0.3)


# --- chapter 14 ----------------------------------------------------------------------------


def root_elements(names: Names) -> Judged:
    shares = [
        count / n**1.5
        for name in ("strided", "fixed")
        for n, count in zip(names["lengths"], names["pairs"][name], strict=True)
    ]
    result = (
        f"64 to 4,096 tokens, causal: fixed exactly 1.00, strided up to {max(shares):.2f} n sqrt(n)"
    )
    return result, verdict(max(shares) <= 2)


def large_contexts(names: Names) -> Judged:
    dense, _ = names["costs"]["whole table", 4096]
    _, slow = names["costs"]["all pairs, fused", 4096]
    sparse, fast = names["costs"]["blocks", 4096]
    result = (
        f"4,096 tokens: the largest tensor is {dense / sparse:.0f} times smaller than the table, "
        f"and the pass {slow / fast:.1f} times as fast as a fused one over all pairs"
    )
    return result, verdict(dense > 4 * sparse, slow > 2 * fast)


def higher_layers(names: Names) -> Judged:
    one, two = zip(*(names["reach"][name][:2] for name in ("strided", "fixed")), strict=True)
    result = f"256 tokens: {span(one, '.0%')} of all pairs in one layer, {min(two):.0%} in two"
    return result, verdict(min(two) == 1 and max(one) < 0.5)


def switched_off(names: Names) -> Judged:
    found = names["switched_off"]
    dense, sparse, deeper = (found[key] for key in (("dense", 1), ("strided", 1), ("strided", 2)))
    result = (
        f"one task of a pair outside the pattern, one layer, 3 seeds: {span(sparse, '.0%')} right, "
        f"dense {span(dense, '.0%')}; with two layers {span(deeper, '.0%')}"
    )
    return result, verdict(min(dense) > max(sparse) + 0.5)


# --- chapter 15 ----------------------------------------------------------------------------


def sixty_four(names: Names) -> Judged:
    return f"{names['table']:,} bytes", verdict(names["table"] == 64_000_000)


def four_tables(names: Names) -> Judged:
    kept = names["table_count"] / names["layers"]
    result = f"torch keeps {kept:.0f} of them for each head and layer: the output of the softmax"
    return result, REFUTED if kept < 4 else verdict(True)


def twelve_layers(names: Names) -> Judged:
    post, kept = names["fits_by_the_post"], names["fits_as_kept"]
    result = f"by the tables alone {post} with four kept, {kept} with the one that torch keeps"
    return result, REFUTED if kept > 2 * post else verdict(True)


def half_memory(names: Names) -> Judged:
    result = (
        f"12 layers with bfloat16 products keep {names['half']:.2f} of the memory for the backward "
        f"pass; weights, norms and the optimizer stay float32"
    )
    return result, verdict(names["half"] < 0.8, names["half"] < 0.55)


def needs_float32(names: Names) -> Judged:
    result = (
        f"float16: a sum of 100,000 losses of 1 is {names['losses16']}, a gradient of 1e-8 is "
        f"{names['small']:.0f}, an update of 1e-4 leaves a weight of 1 at {names['step16']:.0f}"
    )
    lost = names["losses16"] == float("inf"), names["small"] == 0, names["step16"] == 1
    return result, verdict(all(lost))


def sum_of_gradients(names: Names) -> Judged:
    result = (
        f"8 parts and the whole differ by {names['difference']:.0e}; with unequal lengths by "
        f"{names['wrong_means']:.0%} unless sums are divided by the count of all tokens"
    )
    return result, verdict(names["difference"] <= 1e-7)


def batch_of_one(names: Names) -> Judged:
    one, many = names["wobble"][1], names["wobble"][16]
    result = (
        f"64 equal updates, 3 seeds: the loss changes from step to step by {span(one, '.4f')}, "
        f"with 16 accumulated by {span(many, '.4f')}"
    )
    return result, verdict(sum(one) > 3 * sum(many))


def trade_for_memory(names: Names) -> Judged:
    memory, seconds = names["kept_memory"], names["step_seconds"]
    result = (
        f"12 blocks, recomputed one by one: {memory[0] / memory[-1]:.0f} times less memory, "
        f"{seconds[-1] / seconds[0]:.1f} times the time, gradients differ by "
        f"{names['same_gradient']:.0e}"
    )
    return result, verdict(memory[-1] < 0.5 * memory[0] and names["same_gradient"] <= 1e-5)


# --- chapter 16 ----------------------------------------------------------------------------


def set_to_set(names: Names) -> Judged:
    return f"six blocks: f(Px) and P f(x) differ by {names['shuffled']:.0e}", verdict(
        names["shuffled"] <= 1e-7
    )


def structure_adds(names: Names) -> Judged:
    typed, untyped, none = (names["knowledge"][name] for name in ("typed", "untyped", "none"))
    result = (
        f"a knowledge graph of 12 nodes and 2 relations, 3 seeds: {span(typed, '.0%')} right with "
        f"relations as patterns of heads, {span(untyped, '.0%')} with untyped edges, "
        f"{span(none, '.0%')} without (chance 17%)"
    )
    return result, verdict(min(typed) > max(untyped) + 0.2 and min(typed) > max(none) + 0.2)


def several_kinds(names: Names) -> Judged:
    right, without = (
        [min(each) for each in names["several_kinds"][name]]
        for name in ("with structure", "everyone sees everyone")
    )
    result = (
        f"a word, pictures and nodes in one set, 3 seeds: {span(right, '.0%')} right, "
        f"{span(without, '.0%')} without the structure"
    )
    return result, verdict(min(right) > max(without) + 0.4)


def control(names: Names) -> Judged:
    kept, cut = zip(*names["after_cut"], strict=True)
    result = (
        f"effect on units that are not connected: {names['outside']:.0f}; with one relation's "
        f"edges cut after training, its questions {span(cut, '.0%')} right, the other's "
        f"{span(kept, '.0%')}"
    )
    return result, verdict(names["outside"] == 0, min(kept) > max(cut) + 0.4)


ORIGINAL = "The original transformer: encoders and decoders"
BERT, GPT2, XL, SPARSE = "BERT", "GPT-2", "Transformer-XL", "Sparse transformers"
BIG, END = "Going big", "Conclusion"
ON_A_GPU = (
    "clearformer import openai-community/gpt2-xl --out runs/xl && clearformer evaluate runs/xl "
    "--data enwik8 --part test"
)
CLAIMS: tuple[Claim, ...] = (
    Claim(
        10, "[teacher forcing] takes some of the pressure off the latent representation", ORIGINAL,
        forcing_helps,
    ),
    Claim(
        10, "decoding twice [...] would, ideally, give you two different sentences with the same "
        "meaning", ORIGINAL, two_samples,
    ),
    Claim(
        10, "a simple stack of transformer blocks was found to be sufficient", ORIGINAL,
        one_stack_suffices,
    ),
    Claim(
        10, "auto-regressive training, but in parallel, with no need to iterate",
        "second seed, Transformer types", parallel_training,
    ),
    Claim(
        10, "we need to pass at least 2 different variables as input to the forward method",
        "second seed, Efficient multi-head attention", two_variables,
    ),
    Claim(
        11, "a simple stack of transformer blocks, of the type we've described above", BERT,
        same_blocks,
    ),
    Claim(
        11, "800M words from English books [...], and 2.5B words of text from English Wikipedia",
        BERT, not_tried("the books are not public, and the training takes days on many GPUs"),
        command="clearformer train bert-base --data my.txt --minutes 6000",
    ),
    Claim(
        11, "[could] reach human-level performance on a variety of language based tasks", BERT,
        not_tried("needs the published weights and the GLUE and SQuAD data"),
        command="clearformer import google-bert/bert-large-uncased --out runs/bert",
    ),
    Claim(
        11, "since the model doesn't know which words it will be asked about, it learns a "
        "representation for every word", BERT, every_word,
    ),
    Claim(
        11, "it breaks words like walking up into the tokens walk and ##ing", BERT,
        walking_is_split,
    ),
    Claim(
        11, "after pretraining, a single task-specific layer [...] re-trained to finetune the "
        "model", BERT, pretraining_pays,
    ),
    Claim(
        11, "the largest improvement [...] comes from the bidirectional nature of BERT", BERT,
        bidirectional_helps,
    ),
    Claim(
        11, "24 transformer blocks, an embedding dimension of 1024 and 16 attention heads, "
        "resulting in 340M parameters", BERT, bert_size,
    ),
    Claim(
        12, "built very much like our text generation model above, with only small differences",
        GPT2, like_the_generator,
    ),
    Claim(12, "added tricks to train at greater depths", GPT2, deeper),
    Claim(
        12, "tokens that are slightly larger than single characters but less than entire words",
        GPT2, between_letters_and_words,
    ),
    Claim(
        12, "48 transformer blocks, a sequence length of 1024 and an embedding dimension of 1600, "
        "resulting in 1.5B parameters", GPT2, gpt2_size,
    ),
    Claim(
        12, "on the wikipedia compression task that we tried above, they achieve 0.93 bits per "
        "byte", GPT2, not_tried(
            "1.5 billion weights have to be downloaded, and 5 MB of text take a GPU; not the same "
            "task as the post's (erratum 10)"
        ),
        command=ON_A_GPU,
    ),
    Claim(
        13, "the size of the dot-product matrix grows quadratically in the sequence length", XL,
        quadratic,
    ),
    Claim(
        13, "gradients are only computed over the current segment, but information still "
        "propagates", XL, no_gradient,
    ),
    Claim(13, "at layer n, information may be used from n segments ago", XL, n_segments),
    Claim(
        13, "[an absolute encoding] would [...] not lead to a consistent embedding over the whole "
        "sequence", XL, inconsistent,
    ),
    Claim(
        13, "will likely generalize much better to sequences of unseen length", XL, unseen_length,
    ),
    Claim(14, "a sparse attention matrix, with only n√n explicit elements", SPARSE, root_elements),
    Claim(
        14, "this allows models with very large context sizes", SPARSE, large_contexts, timed=True,
    ),
    Claim(
        14, "two units that are not directly related may still interact in higher layers", SPARSE,
        higher_layers,
    ),
    Claim(
        14, "we are disabling some interactions [...] that might otherwise have been useful",
        SPARSE, switched_off,
    ),
    Claim(
        15, "with t=1000 a batch of 16 such matrices takes up about 64Mb of memory", BIG,
        sixty_four,
    ),
    Claim(
        15, "we need to store at least four of them for each head of each self-attention "
        "operation", BIG, four_tables,
    ),
    Claim(
        15, "at most twelve 4-head layers in a standard 12Gb GPU", BIG, twelve_layers,
    ),
    Claim(15, "[half precision] doubles your effective memory", BIG, half_memory),
    Claim(
        15, "for some parts of the network, like the loss, 32 bit precision is required", BIG,
        needs_float32,
    ),
    Claim(15, "simply sum the gradients we find", BIG, sum_of_gradients),
    Claim(15, "batch size 1 is not likely to lead to stable learning", BIG, batch_of_one),
    Claim(15, "trade off even more computation for memory efficiency", BIG, trade_for_memory),
    Claim(
        16, "the current performance limit is purely in the hardware", END,
        not_tried("a claim about models of every size, which no experiment on one CPU can judge"),
        command="clearformer plan gpt2-xl --gpus 64",
    ),
    Claim(16, "the basic transformer is a set-to-set model", END, set_to_set),
    Claim(
        16, "anything else you know about your data [...] you can add [...] by manipulating the "
        "structure of the attention matrix", END, structure_adds,
    ),
    Claim(16, "this is particularly useful in multi-modal learning", END, several_kinds),
    Claim(
        16, "with the sparsity structure providing control over which units directly interact", END,
        control,
    ),
)  # fmt: skip
