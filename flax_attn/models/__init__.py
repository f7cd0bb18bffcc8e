"""Models. Each is `model.apply(variables, inputs, *, train=False) -> (outputs, aux)`; `MODELS` maps a config's name to its class."""

from flax_attn.models.cnn import CNN as CNN
from flax_attn.models.cnn import CNNAttention as CNNAttention
from flax_attn.models.lstm import LSTM as LSTM
from flax_attn.models.lstm import BiLSTM as BiLSTM

MODELS = {"cnn": CNN, "cnn_attention": CNNAttention, "lstm": LSTM, "bilstm": BiLSTM}
