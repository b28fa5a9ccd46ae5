"""What classes, labels and numbers of texts share: outputs in the order of the rows."""

import torch

from clearformer import data
from clearformer.config import DataConfig, RunConfig, TrainConfig
from clearformer.families import classifier
from clearformer.tasks.labelled_texts import table_format, text_outputs
from clearformer.tasks.target import Target
from clearformer.tasks.task import EvaluationOptions
from clearformer.text import train as train_tokenizer


class Lengths(Target):
    """Not a real target: gives back what the model says."""

    def outputs(self, logits):
        return logits


def test_outputs_are_in_the_order_of_the_rows():
    tokenizer = train_tokenizer("words", ["a b c d"], None)
    texts = ["a b c", "a", "a b c d", "b a"]
    rows = data.encode_texts(texts, tokenizer)
    model = classifier("small")
    settings = TrainConfig(learning_rate=0.1, batch_size=2, steps=1)
    config = RunConfig(model=model, data=DataConfig(source=""), train=settings)

    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, tokens, attention_mask):
            return attention_mask.sum(1, keepdim=True)

    found = text_outputs(Counting(), rows, config, Lengths(), batch_size=2)
    assert found[:, 0].tolist() == [3.0, 1.0, 4.0, 2.0]


def test_other_data_is_split_at_the_separator_of_the_training():
    from clearformer.table_options import LabelledFormat, TableOptions

    settings = TrainConfig(learning_rate=0.1, batch_size=2, steps=1)
    own = DataConfig(source="a.csv", table=TableOptions(label_separator="|"))
    config = RunConfig(model=classifier("small"), data=own, train=settings)
    assert table_format(config, EvaluationOptions()).label_separator == "|"
    given = EvaluationOptions(table=LabelledFormat(label_separator=";"))
    assert table_format(config, given).label_separator == ";"
