"""Groups of the measurement of attention. Each checks equal work, times it and yields its rows.

`shrink` divides every length. It is 1 where something is measured, and more in a trial.
"""

import functools
import statistics
from collections.abc import Callable, Iterator

from benchmarks import attention_cases as cases
from benchmarks import attention_forms as forms
from benchmarks.attention_cases import Case
from benchmarks.attention_forms import Call, check, flex, ours, sdpa
from benchmarks.attention_rows import PASSES, Row, milliseconds

MANY = 8192  # from this length on there are 4 heads, below it 8
BATCHES = {512: 4, 2048: 1, 4096: 1, MANY: 1}  # by length
DOUBLING = (8192, 16384, 32768, 65536)
CALLS = 50  # of one step of decoding, in each turn: one by itself is too short


def sized(make: Callable[..., Case], length: int, shrink: int, batch: int = 1) -> Case:
    """Returns the case with its number of heads."""
    return make(length // shrink, 4 if length >= MANY else 8, batch)


def against_sdpa(shrink: int, repeats: int) -> Iterator[Row]:
    """Ours without weights beside PyTorch's SDPA."""
    ratios = []
    for make in (cases.all_keys, cases.causal):
        for length, batch in BATCHES.items():
            case = sized(make, length, shrink, batch)
            for passes, backward in PASSES.items():
                calls = {"ours": ours(case, backward), "SDPA": sdpa(case, backward)}
                check(calls)
                figures = milliseconds(calls, repeats)
                ratios.append(figures["SDPA"] / figures["ours"])
                ratio = {"SDPA / ours": ratios[-1]}
                yield Row.of(case, passes, "ms", figures, ratio)
    yield Row("least", ratios={"SDPA / ours": min(ratios)})
    yield Row("median", ratios={"SDPA / ours": statistics.median(ratios)})


def against_jax(shrink: int, repeats: int) -> Iterator[Row]:
    """Ours with weights and without beside `jax.nn` and `flax.linen`."""
    for length, batch in {128: 16, 512: 4, 2048: 1}.items():
        case = sized(cases.all_keys, length, shrink, batch)
        for passes, backward in PASSES.items():
            calls = {
                "ours": ours(case, backward),
                "ours with weights": ours(case, backward, need_weights=True),
                "jax.nn": forms.jax_nn(case, backward),
                "linen": forms.linen(case, backward),
            }
            check(calls)
            figures = milliseconds(calls, repeats)
            peers = ("jax.nn", "linen")
            ratios = {f"{peer} / ours": figures[peer] / figures["ours"] for peer in peers}
            yield Row.of(case, passes, "ms", figures, ratios)


def causal(shrink: int, repeats: int) -> Iterator[Row]:
    """Ours, causal, beside ours over all keys."""
    yield from beside_all_keys([sized(cases.causal, 4096, shrink)], repeats)


def beside_all_keys(chosen: list[Case], repeats: int, weights: bool = False) -> Iterator[Row]:
    """Ours in each case, beside ours over all keys of the same sizes, with or without weights.

    PyTorch's SDPA checks the work.
    """
    first = chosen[0]
    everything = cases.all_keys(first.length, first.heads, first.batch)
    for passes, backward in PASSES.items():
        calls = {case.name: ours(case, backward, weights) for case in (everything, *chosen)}
        for case in (everything, *chosen):
            check({"SDPA": sdpa(case, backward), "ours": calls[case.name]})
        figures = milliseconds(calls, repeats)
        for case in chosen:
            pair = {"ours": figures[case.name], "all keys": figures[everything.name]}
            ratio = {"ours / all keys": pair["ours"] / pair["all keys"]}
            yield Row.of(case, passes, "ms", pair, ratio)


def weights(shrink: int, repeats: int) -> Iterator[Row]:
    """What masks cost where the weights are returned: dense, so that all of them are computed."""
    half = functools.partial(cases.key_lengths, share=2)
    for length, batch in {512: 4, 2048: 1}.items():
        chosen = [sized(make, length, shrink, batch) for make in (cases.causal, half)]
        yield from beside_all_keys(chosen, repeats, weights=True)


def window(shrink: int, repeats: int) -> Iterator[Row]:
    """A causal window of 256 beside all keys and flex_attention, and over doubled lengths."""
    case, everything = (sized(make, MANY, shrink) for make in (cases.window, cases.all_keys))
    for passes, backward in PASSES.items():
        calls = {"ours": ours(case, backward)}
        if not backward:
            calls["flex"] = flex(case, backward)
        check({"SDPA": sdpa(case, backward)} | calls)
        figures = milliseconds(calls | {"all keys": ours(everything, backward)}, repeats)
        ratios = {"ours / all keys": figures["ours"] / figures["all keys"]}
        if "flex" in figures:
            ratios["flex / ours"] = figures["flex"] / figures["ours"]
        yield Row.of(case, passes, "ms", figures, ratios)
    yield from doubling(shrink, repeats)


def doubling(shrink: int, repeats: int) -> Iterator[Row]:
    """Measures a causal window of 256 at lengths that double: a ratio of 2 is linear."""
    chosen = [sized(cases.window, length, shrink) for length in DOUBLING]
    for passes, backward in PASSES.items():
        calls = {str(case.length): ours(case, backward) for case in chosen}
        figures = milliseconds(calls, repeats)
        half = None
        for case, value in zip(chosen, figures.values()):
            ratio = {"ours / half the length": value / half} if half else {}
            half = value
            yield Row.of(case, passes, "ms", {"ours": value}, ratio)


def visible(shrink: int, repeats: int) -> Iterator[Row]:
    """Lengths, segments and a mask of positions beside all keys; the share of visible blocks."""
    block = 512 // shrink
    chosen = [
        sized(make, MANY, shrink) for make in (cases.key_lengths, cases.segments, cases.recent)
    ]
    shares = {case.name: cases.visible_blocks(case, block) for case in chosen}
    for row in beside_all_keys(chosen, repeats):
        part, whole = shares[row.case]
        ratios = row.ratios | {"visible / all blocks": part / whole}
        yield row._replace(ratios=ratios, note=f"{part} of {whole}, blocks of {block}")


def memory(shrink: int, repeats: int) -> Iterator[Row]:
    """Yields the GiB of XLA's buffers for gradients: a long window, then lengths that double."""
    del repeats  # a plan needs none
    yield planned(sized(cases.window, DOUBLING[-1], shrink))
    for make in (cases.window, cases.causal, cases.key_lengths, cases.segments):
        first, second = (planned(sized(make, length, shrink)) for length in DOUBLING[:2])
        ratio = second.figures["buffers"] / first.figures["buffers"]
        yield first
        yield second._replace(ratios={"buffers / half the length": ratio})


def planned(case: Case) -> Row:
    """Compiles the gradients of a case, and returns the size of their buffers."""
    function, arguments = forms.program(case, backward=True)
    sizes = function.lower(*arguments).compile().memory_analysis()
    gib = (sizes.temp_size_in_bytes + sizes.output_size_in_bytes) / 2**30
    return Row.of(case, "forward and backward", "GiB", {"buffers": gib})


def decoding(shrink: int, repeats: int) -> Iterator[Row]:
    """Measures one query with a cache of keys, beside SDPA with the same cache and no mask."""
    for batch in (1, 16):
        case = sized(cases.decoding, 4096, shrink, batch)
        calls = {"ours": ours(case, False), "SDPA": sdpa(case, False)}
        check(calls)
        often = {name: functools.partial(repeat, call) for name, call in calls.items()}
        figures = {name: value / CALLS for name, value in milliseconds(often, repeats).items()}
        ratio = {"SDPA / ours": figures["SDPA"] / figures["ours"]}
        yield Row.of(case, "forward", "ms", figures, ratio)


def repeat(call: Call) -> None:
    for _ in range(CALLS):
        call()
