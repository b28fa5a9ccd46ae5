"""Model: the class that `load` and `train` return."""

from clearformer.model.generating import GeneratingMixin
from clearformer.model.inspecting import InspectingMixin
from clearformer.model.predicting import PredictingMixin
from clearformer.model.translating import TranslatingMixin
from clearformer.model.writing import WritingMixin


class Model(GeneratingMixin, PredictingMixin, TranslatingMixin, InspectingMixin, WritingMixin):
    """A module with its config and tokenizer, and a method for each thing that it can do.

    `load` and `train` return one. To use a module of your own, pass it with the config that it
    was built from. Methods take one text or a list, and return one result or a list; a text is a
    string, or the token ids that ``model.tokenizer.encode(text)`` gives. A method that the model
    was not trained for raises ValueError and names those that it has.

    Args:
        module (nn.Module): As `clearformer.build` returns it.
        config (ModelConfig): The config of the module.
        tokenizer (Tokenizer, optional): Needed for everything but `generate` from token ids.
        run_config (RunConfig, optional): Settings of data and training, and the generation
            defaults: start and end tokens. Default: the recipe of the model's family.
        path (path, optional): Where it was loaded from.
        checkpoint (Checkpoint, optional): The checkpoint of a run that it was loaded from.
        notes (tuple of str): What the user should know about how it was loaded.

    Attributes:
        module (nn.Module): Plain PyTorch, for training loops, hooks and ``torch.compile``.
        config (ModelConfig): What the model is.
        tokenizer (Tokenizer or None): Text to token ids and back.
        run_config (RunConfig): What it was trained on, and how.

    Example:
        >>> import clearformer as cf
        >>> config = cf.families.modern("tiny")
        >>> model = cf.Model(cf.build(config), config)
        >>> len(model.generate([72, 105], max_tokens=5))  # token ids in, token ids out
        5
    """
