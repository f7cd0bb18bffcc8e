"""The types that signatures share.

Letters: `q`, `k` query and key positions, `d`, `e` features.
"""

from collections.abc import Callable
from typing import Annotated

from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

# Inputs of the functions, which convert them to arrays.
Vectors = Annotated[ArrayLike, "(..., length, features)"]
HeadVectors = Annotated[ArrayLike, "(..., length, heads, features)"]

# Arrays of a score. The widths of queries and keys are equal, or differ where the score allows it.
Queries = Float[Array, "*b q d"]
Keys = Float[Array, "*c k d"]
KeysOfOtherWidth = Float[Array, "*c k e"]
Scores = Float[Array, "*_ q k"]

# Arrays of a normaliser of rows, one for each query.
RowScores = Float[Array, "*b k"]
RowMask = Bool[Array, "*#b #k"]
RowWeights = Float[Array, "*b k"]

# Arrays of a normaliser that needs all queries.
AllScores = Float[Array, "*b q k"]
AllMask = Bool[Array, "*#b #q #k"]
AllWeights = Float[Array, "*b q k"]

Score = Callable[..., Array]  # (queries, keys) -> scores
Normalizer = Callable[..., Array]  # (scores, mask=mask) -> weights

# A mask or a bias: an array that broadcasts to the weights, or a function of the positions of
# queries (q, 1) and keys (1, k) that returns one.
PerPair = ArrayLike | Callable[..., Array]

# (left, right): the number of keys before and after the query's position; None for no bound.
Window = tuple[int | None, int | None]
