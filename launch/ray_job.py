"""Several processes on a Ray cluster, one on each node.

    python launch/ray_job.py NUMBER GPUS --config=configs/NAME.py --workdir=/shared/runs/NAME ...

GPUS is the number of GPUs of a node, which may be 0. The folder for runs must be shared.
"""

import os
import subprocess
import sys

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote
class Process:
    def address(self) -> str:
        return ray.util.get_node_ip_address()

    def train(self, variables: dict[str, str], arguments: list[str]) -> int:
        command = [sys.executable, "train.py", "--distributed", *arguments]
        return subprocess.run(command, env=os.environ | variables).returncode


def main(number: int, gpus: int, arguments: list[str]) -> int:
    nodes = placement_group([{"CPU": 1, "GPU": gpus}] * number, strategy="STRICT_SPREAD")
    ray.get(nodes.ready())
    processes = [
        Process.options(
            num_cpus=1,
            num_gpus=gpus,
            scheduling_strategy=PlacementGroupSchedulingStrategy(nodes, i),
        ).remote()
        for i in range(number)
    ]
    address = f"{ray.get(processes[0].address.remote())}:9876"
    shared = {"JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": str(number)}
    own = [shared | {"JAX_PROCESS_ID": str(i)} for i in range(number)]
    codes = ray.get([p.train.remote(v, arguments) for p, v in zip(processes, own)])
    return max(codes, key=abs)


if __name__ == "__main__":
    ray.init(runtime_env={"working_dir": "."})
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
