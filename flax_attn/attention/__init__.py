"""The attention library: scores, normalisers, `attend`, and Flax modules around them. Knows jax and flax only."""

from flax_attn.attention.core import Attended as Attended
from flax_attn.attention.core import attend as attend
from flax_attn.attention.normalizers import masked_softmax as masked_softmax
from flax_attn.attention.positions import binary_digits as binary_digits
from flax_attn.attention.scores import bilinear as bilinear
from flax_attn.attention.scores import dot as dot
from flax_attn.attention.scores import scaled_dot as scaled_dot
from flax_attn.attention.self_attention import SelfAttention as SelfAttention
