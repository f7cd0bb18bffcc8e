"""Language models: text that a model learns to continue."""

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from flax_attn.data.sets.language import Names
from flax_attn.errors import UsageError
from flax_attn.models.forward import Inputs, Params, in_order
from flax_attn.models.generation import NEVER, GeneratesText, Sampling, check_numbers, generate
from flax_attn.models.language import apply, attention_of, logits_of, losses, softmax
from flax_attn.models.sizes import in_batches
from flax_attn.tasks import induction
from flax_attn.tasks.artifacts import Evaluation, Prediction, to_store
from flax_attn.tasks.inputs.texts import as_texts
from flax_attn.tasks.inputs.tokens import Passages
from flax_attn.tasks.targets.next_token import NextToken, share_in_harmony
from flax_attn.tasks.task import Task
from flax_attn.types import Json, Options, Tree, UserInput

SAMPLE_LENGTH = 500  # tokens of the text that every run writes
NUM_EXAMPLES = 16  # test passages

OnTexts = Callable[[list[str]], object]


@dataclass
class Generated:
    """Texts that a model wrote.

    Attributes:
        texts: each with its prompt.
        tokens: the last ones of the first text, as the model reads them.
        look: computes `attention`.
    """

    texts: list[str]
    tokens: list[str]
    look: Callable[[], dict[str, np.ndarray]] = field(repr=False, compare=False)

    @functools.cached_property
    def attention(self) -> dict[str, np.ndarray]:
        """Computes what the last of these tokens attends to, by block `(heads, tokens)`."""
        return {name: array[0, :, -1] for name, array in self.look().items()}  # (heads, tokens)


@dataclass(frozen=True)
class LanguageModel(Task):
    """A task on running text. `ends` are the tokens that end a text."""

    input_class, target_class = Passages, NextToken

    inputs: Passages
    ends: frozenset[int] = frozenset()

    def examples(self, model: nn.Module, params: Sequence[Params]) -> Evaluation:
        """Evaluates the loss at each position, and induction; writes a text by every seed.

        Arrays have the losses `(seeds, max_length)`, and of the first seed the induction `(blocks,
        heads)`, the attention of the best head on one repeated string, and that of all heads on
        the first test text.
        """
        tested, written = self.tested, self.inputs.written
        first = {name: rows[:NUM_EXAMPLES] for name, rows in tested.items()}
        mask = tested["targets"] > 0  # (n, t)
        by_token = np.stack([losses(model, one_seed, **tested) for one_seed in params])
        counts = mask.sum(axis=0)  # (t,)
        by_position = np.where(counts, by_token.sum(axis=1) / np.maximum(counts, 1), np.nan)
        arrays = first | {"losses": by_position}
        # shares of the loss, so that their mean is that of all tokens
        scores = {"loss": by_token.mean(axis=0).sum(axis=1) / mask.sum(axis=1).mean()}
        if not isinstance(model, GeneratesText):
            logits = logits_of(model, params[0], first["inputs"])  # (n, t, vocabulary)
            arrays["predictions"] = np.asarray(logits.argmax(axis=-1))  # (n, t)
            return Evaluation(arrays, scores=scores)
        applied = apply(model, params[0], first["inputs"], need_weights=True)
        logits, attention = jax.device_get(applied)
        arrays["predictions"] = logits.argmax(axis=-1)  # (n, t)
        n = int((tested["inputs"][0] > 0).sum())
        weights = {name: array[0, :, :n, :n] for name, array in in_order(attention).items()}
        write = functools.partial(self.generate, model, prompts="", length=SAMPLE_LENGTH)
        texts = [write(params=[one_seed]).texts[0] for one_seed in params]
        induced, metrics, summary = self._induction(model, params)
        if isinstance(self.data, Names):
            metrics["test/harmony"] = [share_in_harmony(text) for text in texts]
        arrays |= induced | to_store(weights) | {"tokens": written(tested["inputs"][0, :n])}
        return Evaluation(arrays, metrics, summary, {"sample.txt": texts[0] + "\n"}, scores)

    def _induction(
        self, model: nn.Module, params: Sequence[Params]
    ) -> tuple[dict[str, np.ndarray], dict[str, list[float]], dict[str, Json]]:
        """Returns arrays, metrics and summary of the head that does most induction.

        The strings are as long as the data can hold, and begin as its lines do. All is empty where
        they are too short to show induction.
        """
        inputs, data = self.inputs, self.inputs.data
        names = inputs.written(np.arange(inputs.tokenizer.size)).tolist()
        tokens = [i for i, name in enumerate(names) if i >= NEVER and name != "\n"]
        period = min(len(tokens), data.most_repeated)
        if period < 2:
            return {}, {}, {}
        start = inputs.encoded("") if data.by_line else []
        strings = induction.repeated_strings(tokens, period, data.seed, start)
        looks = [attention_of(model, one_seed, strings) for one_seed in params]
        score = lambda of_block: induction.scores(of_block, period)
        by_head = [np.stack([*map(score, blocks.values())]) for blocks in looks]  # (blocks, heads)
        block, head = map(int, np.unravel_index(by_head[0].argmax(), by_head[0].shape))
        name = list(looks[0])[block]
        arrays = {"induction": by_head[0], "string": inputs.written(strings[0])}
        of_first = [weights[0] for weights in looks[0].values()]
        arrays["induction_weights"] = np.stack(of_first)  # (blocks, heads, t, t)
        metrics = {"test/induction": [float(of_heads.max()) for of_heads in by_head]}
        return arrays, metrics, {"induction_head": f"{name}, head {head}"}

    def predict(self, model: nn.Module, params: Sequence[Params], inputs: UserInput) -> Prediction:
        """Predicts the token after each text, whose last `max_length` tokens are read.

        The probabilities are the mean over the seeds, and the attention is that of the first.
        """
        arrays, written, known = self.inputs.read(inputs)
        outputs, blocks = self.applied(model, params, arrays)
        attention = {
            name: [array[i, :, :n, :n] for i, n in enumerate(arrays["lengths"])]
            for name, array in blocks.items()
        }
        names = self.target.class_names()
        assert names is not None
        best = [names[i] for i in outputs.argmax(axis=-1)]
        return Prediction(outputs, names, best, written, known, attention)

    def applied(
        self, model: nn.Module, params: Sequence[Params], arrays: Inputs
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Computes the probabilities of the next token, and the attention, of encoded texts."""

        def compute(batch: Inputs) -> Tree:
            ends, looks = batch["lengths"] - 1, isinstance(model, GeneratesText)
            logits, attention = apply(model, params[0], batch["tokens"], ends, need_weights=looks)
            others = [logits_of(model, own, batch["tokens"], ends) for own in params[1:]]
            of_seeds = [softmax(one) for one in (logits, *others)]  # (n, vocabulary) each
            return np.mean(of_seeds, axis=0), attention  # (n, vocabulary)

        shares, weights = in_batches(compute, arrays, self.batch_rows)
        return shares, in_order(weights)

    def generate(
        self,
        model: nn.Module,
        params: Sequence[Params],
        prompts: str | Sequence[str],
        *,
        length: int = 500,
        temperature: float = 0.8,
        top_k: int = 40,
        seed: int = 0,
        on_texts: OnTexts | None = None,
    ) -> Generated:
        """Writes texts that begin with the prompts, by the first seed.

        Arguments are those of `flax_attn.Model.generate`. Each text depends on the seed, its prompt
        and the index of that, and not on the other prompts.
        """
        if not isinstance(model, GeneratesText):
            raise UsageError(
                "expected a model with the methods start and decode of gpt, which write texts"
            )
        check_numbers(length, temperature, top_k, seed)
        inputs = self.inputs
        texts = [inputs.encoded(text) for text in as_texts(prompts)]
        most = inputs.tokenizer.size - inputs.num_unwritten
        sampling = Sampling(temperature, top_k if top_k < most else 0)
        going = set(range(len(texts)))
        for parts in generate(model, params[0], texts, length, sampling, seed):
            for i in tuple(going):
                goes_on = lambda token: token not in self.ends
                part = list(itertools.takewhile(goes_on, parts[i].tolist()))
                texts[i].extend(part)
                going -= {i} if len(part) < parts.shape[1] else set()
            if on_texts is not None:
                on_texts(inputs.decoded(texts))
            if not going:
                break
        tokens = np.array(texts[0][-inputs.data.max_length :], np.int32)
        attend = functools.partial(attention_of, model, params[0], tokens[None])
        return Generated(inputs.decoded(texts), inputs.written(tokens).tolist(), attend)

    def compute(
        self,
        model: nn.Module,
        params: Sequence[Params],
        inputs: Inputs,
        need_weights: bool = False,
    ) -> dict[str, Tree]:
        """Computes probabilities `(b, t, vocabulary)` of the token after each, and attention."""
        applied = [apply(model, one, inputs, need_weights=need_weights) for one in params]
        outputs = self.target.decode([logits for logits, _ in applied])
        return {"outputs": outputs, "attention": applied[0][1]}

    def look(self, model: nn.Module, params: Sequence[Params], inputs: Inputs) -> dict[str, Tree]:
        """Computes the probabilities of the next token, and what the last one attends to."""
        last, tokens = inputs["last"], jnp.asarray(inputs["tokens"])
        options: Options = {}
        if isinstance(model, GeneratesText):
            options["need_weights"] = True
        shares, attentions = [], []
        for of_seed in params:
            applied: Tree = model.apply({"params": of_seed}, tokens, **options)
            shares.append(softmax(applied[0][0, last]))  # (vocabulary,)
            attentions.append(applied[1].get("attention", {}))
        outputs = jnp.mean(jnp.stack(shares), axis=0)[None]  # (1, vocabulary)
        return {"outputs": outputs, "attention": attentions[0], "last": last}
