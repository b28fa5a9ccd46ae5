"""Graphs as attention patterns: a task whose answer depends on the edges.

    python examples/graphs.py

Graphs are rings of 6 to 14 nodes with one of five colours each; all sizes go into one batch.
Each *node* is asked which colour is the most frequent among its neighbours and itself, each
*graph* whether equal colours sit together or are mixed. The ablation is the same model on the
same nodes without the edges (everyone sees everyone): of graphs it can only guess.
"""

import argparse
import random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.builder import build
from clearformer.config import Classifier, Full, ModelConfig, NoPosition
from clearformer.extensions.patterns import Each, Graph

COLOURS, MOST = 5, 14
Example = tuple[Graph, list[int], list[int], int]  # graph, colours, of nodes, mixed


def model_config() -> ModelConfig:
    return ModelConfig(
        name="graphs", vocabulary=COLOURS, length=MOST, layers=2, width=64, heads=4, hidden=128,
        residual="pre", activation="gelu", position=NoPosition(), patterns=(Full(),),
        head=Classifier(classes=2, pool="mean"), init="normal",
    )  # fmt: skip


def example(chance: random.Random) -> Example:
    nodes, mixed = chance.randint(6, MOST), chance.randint(0, 1)
    around = sorted(chance.randrange(COLOURS) for _ in range(nodes))
    if mixed:
        chance.shuffle(around)
    ring = chance.sample(range(nodes), nodes)  # a node's number says nothing
    colours = [0] * nodes
    edges = {(node, node) for node in range(nodes)}
    for place, node in enumerate(ring):
        colours[node] = around[place]
        edges |= {(node, ring[place - 1]), (ring[place - 1], node)}
    answers = []
    for node in range(nodes):
        seen = [colours[other] for at, other in edges if at == node]
        answers.append(max(range(COLOURS), key=lambda c, s=seen: (s.count(c), c)))
    return Graph(tuple(sorted(edges)), nodes), colours, answers, mixed


def batch(several: list[Example]) -> tuple[Tensor, Tensor, Tensor, Tensor, Each]:
    """Colours, mask, answers of nodes (each (B, T)), answers of graphs (B,), and the graphs."""
    longest = max(graph.nodes for graph, *_ in several)
    colours, answers = torch.zeros(2, len(several), longest, dtype=torch.long)
    attention_mask = torch.zeros(len(several), longest, dtype=torch.bool)
    for row, (graph, own, right, _) in enumerate(several):
        colours[row, : graph.nodes], answers[row, : graph.nodes] = map(torch.tensor, (own, right))
        attention_mask[row, : graph.nodes] = True
    mixed = torch.tensor([last for *_, last in several])
    return colours, attention_mask, answers, mixed, Each(tuple(graph for graph, *_ in several))


def train(edges: bool, steps: int) -> dict[str, float]:
    torch.manual_seed(0)
    chance = random.Random(0)
    model = build(model_config())
    node_head = nn.Linear(model_config().width, COLOURS)
    optimizer = torch.optim.AdamW([*model.parameters(), *node_head.parameters()], lr=2e-3)
    for step in range(steps + 1):
        several = [example(chance) for _ in range(64 if step < steps else 500)]
        colours, attention_mask, answers, mixed, graphs = batch(several)
        structure = graphs if edges else None
        hidden = model.hidden(colours, attention_mask, structure=structure)  # (B, T, E)
        of_nodes, of_graphs = node_head(hidden)[attention_mask], model.head(hidden, attention_mask)
        loss = F.cross_entropy(of_nodes, answers[attention_mask])
        loss = loss + F.cross_entropy(of_graphs, mixed)
        optimizer.zero_grad()
        if step < steps:
            loss.backward()
            optimizer.step()
    right = (of_nodes.argmax(dim=1) == answers[attention_mask]).float().mean().item()
    return {"nodes": right, "graphs": (of_graphs.argmax(dim=1) == mixed).float().mean().item()}


def main(steps: int = 200) -> dict[str, dict[str, float]]:
    found = {"with edges": train(True, steps), "without edges": train(False, steps)}
    for name, figures in found.items():
        print(
            f"{name:14}: {figures['nodes']:.1%} of nodes, {figures['graphs']:.1%} of graphs right"
        )
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    main(**vars(parser.parse_args()))
