"""Your own text: a small GPT that learns to continue it.

Task     the next character of a text of at least 20 kB in UTF-8. The last tenth is the test split,
         and the tenth before it the validation split
Source   the model of shakespeare_char, with dropout against learning a short text by heart
Command  python train.py --config=configs/text_file.py --config.data.file=FILE.txt
         [--config.data.tokenizer=bytes --config.data.vocabulary_size=2000]
Expect   no figure, it depends on your text; two minutes on 2 cores, five for 1 MB
"""

from typing import Any

from flax_attn import recipes


def get_config(variant: str = "") -> Any:
    data = {"name": "text_file", "valid_fraction": 0.1}
    config = recipes.language("text_file", variant, data, {"dropout_rate": 0.2})
    config.num_epochs = 3 if variant else 20
    config.steps_per_epoch = 150 if variant else 100
    config.batch_size = 12 if variant else 32
    config.patience = 5
    config.learning_rate = 2e-3
    return config
