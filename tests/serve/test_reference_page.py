"""The reference: each field in words, and nothing that a browser would run."""

from clearformer.serve.reference_page import reference_page

DOCUMENT = {
    "info": {"title": "<b>", "version": "1"},
    "paths": {
        "/x": {
            "post": {
                "description": "Does & does.",
                "requestBody": {
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/X"}}}
                },
            }
        }
    },
    "components": {
        "schemas": {
            "X": {
                "required": ["a"],
                "properties": {
                    "a": {"type": "array", "items": {"type": "integer", "minimum": 0}},
                    "b": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                    "c": {"enum": ["y", "z"]},
                    "d": {"$ref": "#/components/schemas/Y"},
                    "e": {"type": "number", "exclusiveMinimum": 0, "maximum": 2},
                },
            },
            "Y": {"properties": {"inner": {}}},
        }
    },
}


def test_each_field_in_words():
    page = reference_page(DOCUMENT)
    for part in (
        "&lt;b&gt;",
        "<code>POST /x</code>",
        "Does &amp; does.",
        "<code>a</code> (required)</td><td>list of integer from 0",
        "<code>b</code></td><td>string<",
        "<code>c</code></td><td>&quot;y&quot; or &quot;z&quot;",
        "<code>d</code></td><td>Y {inner}",
        "<code>e</code></td><td>number above 0 to 2",
    ):
        assert part in page
    assert "<b>" not in page
