"""Numbers as they are displayed, compared with what they should be."""

import math
import re

import torch

NUMBER = re.compile(r"-?(?:\d[\d,]*(?:\.\d+)?(?:e-?\d+)?|∞)|NaN")


def displayed(text):
    """The numbers in a text, each with half a unit of its last digit."""
    found = []
    for token in NUMBER.findall(text.replace("−", "-")):
        if token == "NaN" or "∞" in token:
            found.append((float(token.replace("∞", "inf")), 0.0))
            continue
        mantissa, _, exponent = token.replace(",", "").partition("e")
        digits = len(mantissa.partition(".")[2])
        found.append((float(token.replace(",", "")), 0.5 * 10 ** (int(exponent or 0) - digits)))
    return found


def flat(value):
    """An expression's value as a list of numbers."""
    if isinstance(value, torch.Tensor):
        return value.flatten().tolist()
    if isinstance(value, list | tuple | torch.Size):
        return [number for each in value for number in flat(each)]
    return [value]


def disagreement(text, value):
    """Why a displayed text is not the value; None if it is."""
    if isinstance(value, str):
        return None if text.strip() == value else f"{text!r} is not {value!r}"
    shown, numbers = displayed(text), flat(value)
    if not shown:
        return None  # an empty cell, or a word for nought
    if len(shown) != len(numbers):
        return f"{text!r} has {len(shown)} numbers, its source {len(numbers)}"
    for (number, half), exact in zip(shown, numbers, strict=True):
        near = 1.02 * half + 2e-6 * max(1.0, abs(float(exact)))
        same = number == exact or (math.isnan(number) and math.isnan(exact))
        if not same and not abs(number - float(exact)) <= near:
            return f"{text!r} shows {number}, but it is {exact}"
    return None
