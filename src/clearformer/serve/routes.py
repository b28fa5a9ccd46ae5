"""The routes: the OpenAI API, other kinds of models, and monitoring."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from clearformer.http_server.errors import bad_field
from clearformer.serve.answers import Chat, Completions
from clearformer.serve.metrics import CONTENT_TYPE
from clearformer.serve.requests import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    FillRequest,
    TextsRequest,
    TranslateRequest,
)
from clearformer.serve.service import CurrentService

openai = APIRouter(prefix="/v1", tags=["OpenAI API"])
others = APIRouter(tags=["Other models"])
operation = APIRouter(tags=["Operation"])
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}
}


@openai.get("/models")
async def models(service: CurrentService) -> dict[str, Any]:
    """List the models, and what each can do."""
    return {"object": "list", "data": [_about(service, id) for id in service.models]}


@openai.get("/models/{id:path}")
async def model(service: CurrentService, id: str) -> dict[str, Any]:
    """One model."""
    return _about(service, service.model(id).id)


def _about(service: CurrentService, id: str) -> dict[str, Any]:
    config = service.models[id].model.config
    return {
        "id": id,
        "object": "model",
        "created": 0,
        "owned_by": "clearformer",
        "verbs": list(config.verbs),
        "context_length": config.length,
    }


@openai.post("/completions", responses=EVENTS)
async def completions(
    service: CurrentService, http: Request, request: CompletionRequest
) -> Response:
    """Generate the continuation of one or several texts."""
    served = service.model(request.model)
    sequences = await run_in_threadpool(served.completion_sequences, request)
    form = Completions(served.model.tokenizer, request.logprobs)
    return await service.answer(http, served, form, sequences, request)


@openai.post("/chat/completions", responses=EVENTS)
async def chat_completions(
    service: CurrentService, http: Request, request: ChatRequest
) -> Response:
    """Answer a conversation, using the chat template of the model."""
    served = service.model(request.model)
    sequences = await run_in_threadpool(served.chat_sequences, request)
    form = Chat(served.model.tokenizer, request.logprobs)
    return await service.answer(http, served, form, sequences, request)


@openai.post("/embeddings")
async def embeddings(service: CurrentService, request: EmbeddingRequest) -> Response:
    """Compute a vector for each text."""
    served = service.model(request.model)
    served.require("embed")
    width = served.model.config.width
    if request.dimensions not in (None, width):
        raise bad_field(
            "dimensions",
            f"dimensions is {request.dimensions}, but vectors of {served.id} have {width}: leave "
            f"it out",
        )
    given: Any = request.input
    single = isinstance(given, str) or (bool(given) and isinstance(given[0], int))
    batch = [given] if single else given
    if any(not text for text in batch):
        raise bad_field("input", "a text is empty, so it has no vector: leave it out")
    vectors = await served.engine.call_in_parts(served.vectors, batch)  # for each text (E,)
    data = [
        {"object": "embedding", "index": place, "embedding": _encoded(vector, request)}
        for place, vector in enumerate(vectors)
    ]
    tokens = await run_in_threadpool(_count_tokens, served.model.tokenizer, batch)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return JSONResponse({"object": "list", "data": data, "model": served.id, "usage": usage})


def _encoded(vector: Any, request: EmbeddingRequest) -> list[float] | str:
    if request.encoding_format == "float":
        return [float(value) for value in vector]
    return base64.b64encode(vector.astype(np.dtype("<f4")).tobytes()).decode("ascii")


def _count_tokens(tokenizer: Any, batch: list[Any]) -> int:
    return sum(
        len(tokenizer.encode(text)) if isinstance(text, str) else len(text) for text in batch
    )


@others.post("/classify")
async def classify(service: CurrentService, request: TextsRequest) -> Response:
    """Classify texts."""
    served = service.model(request.model)
    served.require("classify")
    texts = served.texts(request.texts)
    found = await served.engine.call_in_parts(served.model.classify, texts)
    results = [{**each.answer(), "cut": each.cut} for each in found]
    return JSONResponse({"model": served.id, "results": results})


@others.post("/predict")
async def predict(service: CurrentService, request: TextsRequest) -> Response:
    """Predict numbers for texts."""
    served = service.model(request.model)
    served.require("predict")
    texts = served.texts(request.texts)
    found = await served.engine.call_in_parts(served.model.predict, texts)
    results = [{**each.answer(), "cut": each.cut} for each in found]
    return JSONResponse({"model": served.id, "results": results})


@others.post("/fill")
async def fill(service: CurrentService, request: FillRequest) -> Response:
    """Predict the masked tokens of texts."""
    served = service.model(request.model)
    served.require("fill")
    texts = served.texts(request.texts)
    found = await served.engine.call_in_parts(
        lambda part: served.model.fill(part, top_k=request.top_k), texts
    )
    results = [
        [
            [{"token": c.piece, "id": c.id, "probability": c.probability} for c in candidates]
            for candidates in masks
        ]
        for masks in found
    ]
    return JSONResponse({"model": served.id, "results": results})


@others.post("/translate")
async def translate(service: CurrentService, request: TranslateRequest) -> Response:
    """Translate texts."""
    served = service.model(request.model)
    served.require("translate")
    texts = served.texts(request.texts)
    found = await served.engine.call_in_parts(
        lambda part: served.model.translations(
            part,
            beam=request.beam,
            length_penalty=request.length_penalty,
            best=request.best,
            max_tokens=request.max_tokens,
        ),
        texts,
    )
    results = [[{"text": each.text, "score": each.score} for each in several] for several in found]
    return JSONResponse({"model": served.id, "results": results})


@operation.get("/health")
async def health(service: CurrentService) -> Response:
    """Health check: 200, or 503 while the server shuts down. Needs no API key."""
    status = "draining" if service.draining else "ok"
    return JSONResponse({"status": status}, status_code=503 if service.draining else 200)


@operation.get("/metrics")
async def metrics(service: CurrentService) -> Response:
    """Metrics in the Prometheus text format."""
    return Response(service.metrics.text(), media_type=CONTENT_TYPE)
