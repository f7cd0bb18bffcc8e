"""Answers requests of the page about a run.

The numbers are those of `Run.predict` where no setting is changed.
"""

import functools

import jax
import numpy as np

from flax_attn.errors import UsageError
from flax_attn.experiment.loading import Run
from flax_attn.explore.under_lens import Traced, under_lens
from flax_attn.models.forward import Inputs, Params, check_finite
from flax_attn.page.data import safe
from flax_attn.tasks.asking import Settings, read
from flax_attn.tasks.language import LanguageModel
from flax_attn.tasks.replies import EMPTY, WITHOUT_WEIGHTS
from flax_attn.types import Json, JsonObject, Tree

SHORT = 32  # tokens


class Answers:
    """Answers for one run."""

    def __init__(self, run: Run) -> None:
        self.run, self.task = run, run.task
        self.params: list[Params] = list(run.params.values())
        in_loop = hasattr(run.model, "step") or hasattr(run.model, "decode_step")
        compute = functools.partial(run.task.look, run.model)
        self.program = under_lens(compute, keep_scores=not in_loop)  # no score leaves a loop

    def warm(self) -> None:
        """Compiles what a page asks about short inputs."""
        for inputs in self.task.inputs.of_sizes(1, SHORT):
            is_text, num_keys = isinstance(inputs, dict), None
            if is_text and "source" in inputs:
                num_keys = inputs["source"].shape[1]
            elif is_text and isinstance(self.task, LanguageModel):
                inputs = {"tokens": inputs["tokens"], "last": np.int32(0)}
            self.look(inputs, Settings(), num_keys)

    def look(
        self, inputs: Inputs, settings: Settings, num_keys: int | None = None
    ) -> dict[str, Tree]:
        """Computes under settings. `num_keys` is that of `under_lens`."""
        traced, normalizer = Traced.of(settings), settings.normalizer
        return jax.device_get(self.program(self.params, inputs, traced, normalizer, num_keys))

    def __call__(self, request: Json) -> JsonObject:
        """Returns the reply to a request. Its texts are escaped, as all that a page shows.

        Raises:
            UsageError: a request that is none, or an input that the run does not take.
        """
        asked = read(request)
        if asked.changes:
            raise UsageError("expected changes of a published model alone, got a run")

        def look(inputs: Inputs, num_keys: int | None = None) -> dict[str, Tree]:
            looked = self.look(inputs, asked.settings, num_keys)
            check_finite(looked.get("outputs", 0))  # a translation has none
            return looked

        reply = EMPTY | self.task.answer(asked, look)
        return safe(reply | WITHOUT_WEIGHTS if asked.brief else reply)
