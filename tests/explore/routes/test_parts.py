"""The plan, the flow, norms and hidden units over HTTP."""


def test_plan_flow_norm_and_units(client, traced):
    id = traced("gpt2")["id"]
    assert client.get("/api/models/gpt2/blueprint")["residual"] == "pre"
    assert len(client.get(f"/api/traces/{id}/flow")["stacks"]) == 1
    told = client.get(f"/api/traces/{id}/norm?which=mlp&layer=1&i=2")
    assert (told["kind"], told["layer"], told["i"]) == ("layer", 1, 2)
    assert len(client.get(f"/api/traces/{id}/mlp?layer=0&i=0&k=3")["units"]) == 3
    assert client.get(f"/api/traces/{id}/unit?layer=0&i=0&j=3")["j"] == 3
    client.get(f"/api/traces/{id}/norm?which=cross&i=0", status=404)
    client.get(f"/api/traces/{id}/norm?which=nothing&i=0", status=422)
