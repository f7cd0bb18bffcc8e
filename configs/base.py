"""The recipes that experiments share.

They are in the package `flax_attn.recipes`, so your own configs can import them from there.
"""

from flax_attn.recipes import common as common
from flax_attn.recipes import images as images
from flax_attn.recipes import shapes as shapes
from flax_attn.recipes import texts as texts
from flax_attn.recipes import translation as translation
