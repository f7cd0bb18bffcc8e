"""The bytes that devices send each other, in the compiled steps of `shapes_attention:tutorial`.

Groups of up to eight devices share a batch. They add up the gradients of `p` parameters in each
step: the formula is `4p` bytes, of which each of `n` devices sends `2 (n-1)/n`.
"""

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

SIZES = {"f32": 4, "s32": 4, "u32": 4, "pred": 1, "f64": 8}
COLLECTIVES = "all-reduce|all-gather|reduce-scatter|collective-permute|all-to-all"
GROUP = 8  # devices that share a batch
BATCH = 128


class Collective(NamedTuple):
    """One operation between devices: its name, the bytes of its result, and whether steps do it."""

    name: str
    bytes: int
    in_step: bool


def collectives(text: str) -> Iterator[Collective]:
    """The operations between devices in a compiled program."""
    for line in text.splitlines():
        match = re.search(rf"= (.*?) ({COLLECTIVES})(?:-start)?\(", line)
        if match is None:
            continue
        arrays = re.findall(r"(\w+)\[([\d,]*)\]", match[1])
        sizes = [
            SIZES[dtype] * math.prod(int(axis) for axis in shape.split(",") if axis)
            for dtype, shape in arrays
        ]
        yield Collective(match[2], sum(sizes), line.count("while/body") > 1)


def sent(num_devices: int) -> dict[str, Any]:
    """What the steps of `shapes_attention` send and hold on a mesh of all devices."""
    import jax
    import numpy as np
    from jax.sharding import NamedSharding

    from configs import shapes_attention
    from flax_attn.experiment.config import Config
    from flax_attn.experiment.programs import build_model, count_parameters, make_programs
    from flax_attn.training.mesh import EVERYWHERE, SEEDS

    values = shapes_attention.get_config("tutorial")
    changes = {"num_seeds": max(1, num_devices // GROUP), "batch_size": BATCH}
    values.update_from_flattened_dict(changes | {"steps_per_epoch": 10, "data.num_train": 1_000})
    config = Config.of(values)
    task = config.kind.load(config.data, config.recipe, None)
    programs = make_programs(config, build_model(config, task.kept.sizes), task)

    def shapes(tree: Any, spec: Any, leading: tuple[int, ...] = ()) -> Any:
        sharding = NamedSharding(programs.mesh, spec)
        shape_of = lambda leaf: jax.ShapeDtypeStruct(
            (*leading, *leaf.shape), leaf.dtype, sharding=sharding
        )
        return jax.tree.map(shape_of, tree)

    one = jax.eval_shape(programs.one_seed.create, np.uint32(0))
    states = shapes(one, SEEDS, (config.num_seeds,))
    rows = shapes(task.rows.train, EVERYWHERE)
    order = jax.eval_shape(programs.one_seed.order, one, np.int32(1))
    sums = jax.eval_shape(programs.one_seed.first_metrics, one, order, rows)
    places = (np.int32(1), np.int32(0), np.int32(10))
    sums, order = shapes((sums, order), SEEDS, (config.num_seeds,))
    compiled = programs.train_steps.lower(states, sums, order, *places, rows).compile()
    sent = list(collectives(compiled.as_text()))
    return {
        "devices": num_devices,
        "seeds": programs.mesh.shape["seed"],
        "data": programs.mesh.shape["data"],
        "parameters": count_parameters(one.params),
        "bytes_step": sum(one.bytes for one in sent if one.in_step),
        "bytes_around": sum(one.bytes for one in sent if not one.in_step),
        "formula": 4 * count_parameters(one.params) if programs.mesh.shape["data"] > 1 else 0,
        "temporary": compiled.memory_analysis().temp_size_in_bytes,
    }
