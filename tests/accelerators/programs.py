"""What a program holds, read from its text."""

import math
import re


def largest(text):
    """Returns the numbers in the largest array of a program in StableHLO."""
    shapes = set(re.findall(r"tensor<((?:\d+x)+)[a-z]", text))
    return max(math.prod(map(int, re.findall(r"(\d+)x", shape))) for shape in shapes)
