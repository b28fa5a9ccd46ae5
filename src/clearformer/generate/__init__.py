"""From logits to text: how a token is chosen, and one after the other."""
