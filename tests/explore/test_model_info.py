"""Model information from its config alone."""

from clearformer.explore import model_info


def test_model_info_of_every_family(explorer_server):
    rows = {entry.id: model_info.model_info(entry) for entry in explorer_server.library.models()}
    tasks = {id: row["tasks"] for id, row in rows.items()}
    assert tasks["gpt2"] == tasks["xl"] == tasks["sparse"] == tasks["modern"] == ["generate"]
    assert (tasks["bert"], tasks["classifier"]) == (["fill"], ["classify"])
    assert tasks["original"] == ["translate"]
    assert rows["original"]["parts"] == ["encoder", "decoder", "cross"]
    assert {id: row["positions"] for id, row in rows.items() if id in ("xl", "modern", "bert")} == {
        "xl": "relative", "modern": "rotary", "bert": "learned",
    }  # fmt: skip
    assert rows["xl"]["memory"] == 8
    # Only learned positions end somewhere.
    assert {id: rows[id]["longest"] for id in ("gpt2", "xl", "modern")} == {
        "gpt2": 64, "xl": None, "modern": None,
    }  # fmt: skip
    assert rows["classifier"]["labels"] == ["negative", "positive"]
    assert rows["modern"]["n_key_heads"] == 1
    assert [rows[id]["causal"] for id in ("gpt2", "sparse", "bert")] == [True, True, False]
    assert rows["gpt2"]["checkpoints"][1] == {
        "id": "step-10", "step": 10, "val_loss": 2.9 / 10**0.5,
    }  # fmt: skip


def test_parameters_sum_to_the_number_of_parameters(explorer_server, loaded):
    for id in ("gpt2", "original"):
        told = model_info.parameters(explorer_server.library.entry(id))
        count = sum(p.numel() for p in loaded(id).model.module.parameters())
        assert told["total"] == sum(row["count"] for row in told["rows"]) == count
