"""Training a PyTorch model on one batch by the recipe of one of our configs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.ours import has_padding, is_regression


def trainer(
    model: nn.Module, batch: Any, config: Any
) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
    """Returns a step of training, which returns its loss, and the loss alone, without dropout and
    smoothing.
    """
    inputs, targets = arguments(batch)
    options = config.optimizer
    decayed, others = (
        [p for p in model.parameters() if (p.ndim > 1) == wanted] for wanted in (True, False)
    )
    groups = [
        {"params": decayed, "weight_decay": options.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(
        groups, lr=config.learning_rate, betas=(options.b1, options.b2), eps=options.eps
    )

    def loss(label_smoothing: float = 0.0) -> Tensor:
        outputs = model(*inputs)
        if is_regression(batch):
            return nn.functional.mse_loss(outputs, targets)
        return nn.functional.cross_entropy(
            outputs.reshape(-1, outputs.shape[-1]),
            targets.flatten(),
            ignore_index=0 if has_padding(batch) else -100,
            label_smoothing=label_smoothing,
        )

    def step() -> Tensor:
        optimizer.zero_grad()
        value = loss(config.label_smoothing)
        value.backward()
        if options.clip_norm:
            nn.utils.clip_grad_norm_(model.parameters(), options.clip_norm)
        optimizer.step()
        return value.detach()

    @torch.no_grad()
    def alone() -> Tensor:
        model.eval()
        value = loss()
        model.train()
        if hasattr(model, "reset"):
            model.reset()  # pyright: ignore
        return value

    return step, alone


def arguments(batch: Any) -> tuple[list[Tensor], Tensor]:
    """What the models take, and the targets: signals channels first, whole numbers of 64 bits."""

    def tensor(array: Any) -> Tensor:
        numbers = torch.from_numpy(np.array(array))
        if not numbers.is_floating_point():
            return numbers.long()
        return numbers.transpose(1, 2).contiguous() if numbers.shape[-1] == 1 else numbers

    inputs = batch["inputs"]
    names = ("tokens", "lengths", "source", "source_lengths", "target")
    arrays = (
        [inputs[name] for name in names if name in inputs] if isinstance(inputs, dict) else [inputs]
    )
    return [tensor(array) for array in arrays], tensor(batch["targets"])
