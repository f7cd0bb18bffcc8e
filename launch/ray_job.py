"""Several processes on a Ray cluster, one on each node.

    python launch/ray_job.py NUMBER --config=configs/NAME.py --workdir=/shared/runs/NAME ...

The nodes need this repository in the working directory, and a folder for runs that all share.
"""

import os
import subprocess
import sys

import ray


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
class Process:
    def address(self) -> str:
        return ray.util.get_node_ip_address()

    def train(self, variables: dict[str, str], arguments: list[str]) -> int:
        command = [sys.executable, "train.py", "--distributed", *arguments]
        return subprocess.run(command, env=os.environ | variables).returncode


def main(number: int, arguments: list[str]) -> int:
    processes = [Process.remote() for _ in range(number)]
    address = f"{ray.get(processes[0].address.remote())}:9876"
    shared = {"JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": str(number)}
    own = [shared | {"JAX_PROCESS_ID": str(i)} for i in range(number)]
    codes = ray.get([p.train.remote(v, arguments) for p, v in zip(processes, own)])
    return max(codes, key=abs)


if __name__ == "__main__":
    ray.init()
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
