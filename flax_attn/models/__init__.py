"""Models, `model.apply(variables, inputs, *, train=False) -> (outputs, aux)`.

`MODELS` maps the name in a config to the class.
"""

from flax_attn.models.cnn import CNN as CNN
from flax_attn.models.cnn import CNNAttention as CNNAttention
from flax_attn.models.gpt import GPT as GPT
from flax_attn.models.images import MLP as MLP
from flax_attn.models.images import PatchAttention as PatchAttention
from flax_attn.models.images import PatchTransformer as PatchTransformer
from flax_attn.models.lstm import LSTM as LSTM
from flax_attn.models.lstm import BiLSTM as BiLSTM
from flax_attn.models.ngrams import NGramAttention as NGramAttention
from flax_attn.models.residual import ResidualAttention as ResidualAttention
from flax_attn.models.series import InputAttentionRNN as InputAttentionRNN
from flax_attn.models.text import GRUAttention as GRUAttention
from flax_attn.models.text import RNNAttention as RNNAttention
from flax_attn.models.text import StructuredAttention as StructuredAttention
from flax_attn.models.translation import Seq2Seq as Seq2Seq
from flax_attn.models.translation_transformer import (
    TranslationTransformer as TranslationTransformer,
)

MODELS = {
    "cnn": CNN,
    "cnn_attention": CNNAttention,
    "residual_attention": ResidualAttention,
    "lstm": LSTM,
    "bilstm": BiLSTM,
    "mlp": MLP,
    "patch_attention": PatchAttention,
    "patch_transformer": PatchTransformer,
    "rnn_attention": RNNAttention,
    "gru_attention": GRUAttention,
    "structured_attention": StructuredAttention,
    "ngram_attention": NGramAttention,
    "input_attention": InputAttentionRNN,
    "gpt": GPT,
    "seq2seq": Seq2Seq,
    "translation_transformer": TranslationTransformer,
}
