"""The API's reference as one HTML page, made from its OpenAPI document, without scripts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code{background:#8882;padding:.1em .3em}td,th{padding:.2rem .8rem .2rem 0;text-align:left;"
    "vertical-align:top}h2{margin-top:2.5rem}:root{color-scheme:light dark}"
)


def reference_page(document: Mapping[str, Any]) -> str:
    """All routes with their parameters."""
    title = escape(document["info"]["title"])
    routes = [
        _route(document, path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f"<main><h1>{title}</h1><p>Version {escape(document['info']['version'])}. The same as an "
        f'OpenAPI document: <a href="/openapi.json">/openapi.json</a>.</p>{"".join(routes)}'
        f"</main></body></html>"
    )


def _route(document: Mapping[str, Any], path: str, method: str, operation: Any) -> str:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    schema = _resolved(document, body.get("schema", {}))
    required = schema.get("required", [])
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code>{'' if name not in required else ' (required)'}</td>"
        f"<td>{escape(_kind(document, field))}</td></tr>"
        for name, field in schema.get("properties", {}).items()
    )
    table = f"<table><tr><th>Field</th><th>Type</th></tr>{rows}</table>" if rows else ""
    return (
        f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
        f"<p>{escape(operation.get('description', ''))}</p>{table}"
    )


def _resolved(document: Mapping[str, Any], schema: Any) -> Any:
    name = schema.get("$ref", "")
    return document["components"]["schemas"][name.rpartition("/")[2]] if name else schema


def _kind(document: Mapping[str, Any], field: Any) -> str:
    """A field's type in words."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        inner = _resolved(document, field).get("properties", {})
        return f"{name} {{{', '.join(inner)}}}"
    for several in ("anyOf", "oneOf"):
        if several in field:
            kinds = [_kind(document, each) for each in field[several]]
            return " or ".join(dict.fromkeys(kind for kind in kinds if kind != "null"))
    if "const" in field or "enum" in field:
        values = field.get("enum", [field.get("const")])
        return " or ".join(json.dumps(value) for value in values)
    if field.get("type") == "array":
        return f"list of {_kind(document, field.get('items', {}))}"
    bounds = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to"}
    notes = [f"{word} {field[name]:g}" for name, word in bounds.items() if name in field]
    return " ".join([field.get("type", "any"), *notes])
