"""The official OpenAI client: every route, streaming, options and errors."""

import json
import math

import openai
import pytest

MESSAGES = [{"role": "user", "content": "hi"}]
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"type": "boolean"}},
    "required": ["n", "b"],
}


def test_lists_and_retrieves_models(client, models):
    listed = {model.id: model for model in client.models.list()}
    assert set(listed) == set(models)
    assert listed["labels"].verbs == ["classify", "embed"]
    assert client.models.retrieve("chat").context_length == 128


# --- completions ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["chat", "plain"])
def test_completion_matches_model_generate(client, models, name):
    """Of a context of 48 tokens, 60 new ones: the window slides as it does alone."""
    options = {"max_tokens": 60, "temperature": 0.9, "top_p": 0.95, "seed": 11}
    found = client.completions.create(model=name, prompt="the cat", **options)
    assert found.choices[0].text == models[name].generate("the cat", **options)
    assert found.choices[0].finish_reason == "length"
    assert found.usage.prompt_tokens == 7
    assert found.usage.completion_tokens == 60


def test_multiple_prompts_and_samples(client, models):
    prompts, options = ["a cat", "the dog"], {"max_tokens": 9, "seed": 3, "temperature": 1.0}
    found = client.completions.create(model="chat", prompt=prompts, n=2, **options)
    assert [choice.index for choice in found.choices] == [0, 1, 2, 3]
    expected = models["chat"].generate(prompts, samples=2, **options)
    assert [choice.text for choice in found.choices] == [text for two in expected for text in two]
    assert found.usage.prompt_tokens == len("a cat" + "the dog")
    equal = client.completions.create(model="chat", prompt=["abc", "abc"], n=2, **options)
    assert equal.usage.prompt_tokens == 6
    ids = client.completions.create(model="chat", prompt=[list(b"a cat"), [1]], **options)
    assert ids.choices[0].text == found.choices[0].text


def test_texts_differ_without_seed(client):
    texts = {
        client.completions.create(model="chat", prompt="x", max_tokens=20).choices[0].text
        for _ in range(2)
    }
    assert len(texts) == 2


def test_stream_matches_whole_completion(client):
    options = {"model": "chat", "prompt": ["a", "b"], "n": 2, "max_tokens": 12, "seed": 5}
    whole = client.completions.create(**options)
    texts, reasons, usage = [""] * 4, [None] * 4, None
    for part in client.completions.create(
        **options, stream=True, stream_options={"include_usage": True}
    ):
        usage = part.usage or usage
        for choice in part.choices:
            assert reasons[choice.index] is None
            texts[choice.index] += choice.text
            reasons[choice.index] = choice.finish_reason
    assert texts == [choice.text for choice in whole.choices]
    assert reasons == ["length"] * 4
    assert usage == whole.usage


def test_stop_strings_end_completion(client, models):
    text = models["plain"].generate("the", max_tokens=40, seed=2, temperature=1.0)
    stop = text[20:22]
    options = {"model": "plain", "prompt": "the", "max_tokens": 40, "seed": 2}
    for given in (stop, ["never there", stop]):
        choice = client.completions.create(**options, stop=given).choices[0]
        assert (choice.text, choice.finish_reason) == (text[: text.index(stop)], "stop")
        parts = client.completions.create(**options, stop=given, stream=True)
        assert "".join(part.choices[0].text for part in parts) == choice.text


def test_completion_logprobs(client, models):
    options = {"max_tokens": 5, "seed": 1, "temperature": 1.0}
    found = client.completions.create(model="chat", prompt="the", logprobs=3, **options).choices[0]
    (known,) = models["chat"].completions("the", **options)
    nats = [-token.bits * math.log(2) for token in known.tokens]
    assert found.logprobs.token_logprobs == pytest.approx(nats, abs=1e-4)
    assert all(len(top) == 3 for top in found.logprobs.top_logprobs)
    assert all(max(top.values()) <= 0 for top in found.logprobs.top_logprobs)
    assert client.completions.create(model="chat", prompt="the").choices[0].logprobs is None


# --- chat ----------------------------------------------------------------------------------


def test_chat_matches_model_chat(client, models):
    options = {"max_tokens": 20, "temperature": 0.7, "seed": 4}
    found = client.chat.completions.create(model="chat", messages=MESSAGES, **options).choices[0]
    assert found.message.role == "assistant"
    assert found.message.content == models["chat"].chat(MESSAGES, **options)
    parts = client.chat.completions.create(model="chat", messages=MESSAGES, stream=True, **options)
    deltas = [part.choices[0].delta for part in parts]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == found.message.content


def test_chat_without_max_tokens_fits_context(client):
    found = client.chat.completions.create(model="chat", messages=MESSAGES, seed=1)
    assert found.usage.total_tokens <= 128
    found = client.chat.completions.create(
        model="chat", messages=MESSAGES, max_completion_tokens=3, seed=1
    )
    assert found.usage.completion_tokens <= 3


def test_chat_logprobs(client):
    found = client.chat.completions.create(
        model="chat", messages=MESSAGES, logprobs=True, top_logprobs=2, max_tokens=4, temperature=0
    )
    for token in found.choices[0].logprobs.content:
        assert token.top_logprobs[0].logprob == token.logprob
        assert token.top_logprobs[0].token == token.token
        assert len(token.bytes) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_chat_follows_json_schema(client, stream):
    options = {
        "model": "chat",
        "messages": MESSAGES,
        "seed": 2,
        "max_tokens": 90,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "x", "strict": True, "schema": SCHEMA},
        },
    }
    if stream:
        parts = client.chat.completions.create(**options, stream=True)
        text = "".join(part.choices[0].delta.content or "" for part in parts)
    else:
        text = client.chat.completions.create(**options).choices[0].message.content
    value = json.loads(text)
    assert 0 <= value["n"] <= 99
    assert isinstance(value["b"], bool)


def test_chat_json_object_format(client):
    found = client.chat.completions.create(
        model="chat",
        messages=MESSAGES,
        max_tokens=60,
        seed=8,
        response_format={"type": "json_object"},
    )
    assert found.choices[0].message.content.startswith("{")


# --- embeddings ----------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["float", "base64"])
def test_embeddings_match_model_embed(client, models, form):
    texts = ["the cat", "the dog sat"]
    found = client.embeddings.create(model="chat", input=texts, encoding_format=form)
    expected = models["chat"].embed(texts)
    if form == "float":
        for each, vector in zip(found.data, expected, strict=True):
            assert each.embedding == pytest.approx(vector.tolist(), abs=1e-6)
    # By default the client asks for base64 and decodes it.
    default = client.embeddings.create(model="chat", input=texts[0])
    assert default.data[0].embedding == pytest.approx(expected[0].tolist(), abs=1e-5)
    assert default.usage.prompt_tokens == 7
    assert [each.index for each in found.data] == [0, 1]


# --- errors --------------------------------------------------------------------------------

BAD = [
    ({"model": "none"}, openai.NotFoundError, "there is no model 'none': this server has chat"),
    ({"model": "labels"}, openai.BadRequestError, "labels is a classifier: it can classify and"),
    ({"prompt": ""}, openai.BadRequestError, "the prompt is empty"),
    ({"prompt": []}, openai.BadRequestError, "prompt has 0 values, but it must have"),
    ({"prompt": [999]}, openai.BadRequestError, "the prompt has the id 999, but chat has"),
    (
        {"prompt": ["a"] * 3, "n": 100},
        openai.BadRequestError,
        "the request asks for 100 texts for each of 3 prompts, but at most 128 texts are allowed",
    ),
    ({"max_tokens": 5000}, openai.BadRequestError, "max_tokens is 5,000, but this server allows"),
    ({"temperature": -1}, openai.BadRequestError, "temperature is -1, but it must be at"),
    ({"top_p": 0}, openai.BadRequestError, "top_p"),
    ({"stop": ""}, None, None),
    ({"stop": ["a", ""]}, openai.BadRequestError, "a stop string is empty"),
    ({"best_of": 3}, openai.BadRequestError, "best_of is 3, but only 1 is supported: leave it"),
    ({"presence_penalty": 1}, openai.BadRequestError, "presence_penalty is 1.0, but only 0 is"),
    (
        {"extra_body": {"wish": 1}},
        openai.BadRequestError,
        "wish is not supported here: leave",
    ),
    ({"extra_body": {"prompt": 3}}, openai.BadRequestError, "prompt"),
]


@pytest.mark.parametrize(("changes", "kind", "sentence"), BAD)
def test_rejects_invalid_completion_requests(client, changes, kind, sentence):
    options = {"model": "chat", "prompt": "x", "max_tokens": 2, **changes}
    if kind is None:
        assert client.completions.create(**options).choices
        return
    with pytest.raises(kind) as problem:
        client.completions.create(**options)
    assert sentence in problem.value.message
    assert "\n" not in problem.value.message


SYSTEM = {"role": "system", "content": "s"}
BAD_CHATS = [
    ({"model": "plain"}, "plain has no chat template, so it cannot answer messages"),
    ({"messages": []}, "there are no messages: give at least one of the user"),
    ({"messages": [*MESSAGES, *MESSAGES]}, "messages[1] has the role user, but after a user's"),
    ({"messages": [SYSTEM]}, "ends with a message of the role system, so there is nothing to"),
    ({"messages": [*MESSAGES, SYSTEM]}, "messages[1] has the role system"),
    ({"messages": [{"role": "user", "content": "x" * 500}]}, "tokens, but the context of"),
    ({"top_logprobs": 2}, "top_logprobs is given without logprobs: add logprobs=true"),
    ({"max_completion_tokens": 2}, "give max_tokens or max_completion_tokens, and not both"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        "response_format has no json_schema.schema",
    ),
    (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"enum": []}},
            }
        },
        "no text can follow the schema: schema.enum cannot be met, because it is empty",
    ),
    (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"type": "string", "minLength": 99999}},
            }
        },
        "the schema cannot be used: it needs more than 20,000 states",
    ),
    ({"extra_body": {"tools": []}}, "tools is not supported here: leave it out"),
]


@pytest.mark.parametrize(("changes", "sentence"), BAD_CHATS)
@pytest.mark.parametrize("stream", [False, True])
def test_rejects_invalid_chat_requests(client, changes, sentence, stream):
    """Before a stream begins, so that the status tells it too."""
    options = {"model": "chat", "messages": MESSAGES, "max_tokens": 2, **changes}
    with pytest.raises(openai.BadRequestError) as problem:
        client.chat.completions.create(**options, stream=stream)
    assert sentence in problem.value.message


def test_rejects_invalid_embedding_requests(client):
    with pytest.raises(openai.BadRequestError, match="pairs is a translator: it can translate"):
        client.embeddings.create(model="pairs", input="x")
    with pytest.raises(
        openai.BadRequestError, match="dimensions is 3, but vectors of chat have 16: leave it out"
    ):
        client.embeddings.create(model="chat", input="x", dimensions=3)
    with pytest.raises(openai.BadRequestError, match="a text is empty, so it has no vector"):
        client.embeddings.create(model="chat", input=["x", ""])
    with pytest.raises(openai.BadRequestError, match="a text has more tokens than chat reads"):
        client.embeddings.create(model="chat", input=["x", "x" * 500])
    with pytest.raises(openai.BadRequestError, match="input has 0 values, but it must have at"):
        client.embeddings.create(model="chat", input=[])
