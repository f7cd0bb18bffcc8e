#!/usr/bin/env bash
# Under Open MPI 4 or 5: mpirun -n 16 launch/mpi.sh --config=configs/NAME.py ...
# JAX finds the processes of Open MPI 4. Those of Open MPI 5 need an address that all can reach:
# mpirun -x JAX_COORDINATOR_ADDRESS=node1:9876 -n 16 launch/mpi.sh --config=configs/NAME.py ...
if [ -n "${JAX_COORDINATOR_ADDRESS:-}" ]; then
  export JAX_NUM_PROCESSES=$OMPI_COMM_WORLD_SIZE JAX_PROCESS_ID=$OMPI_COMM_WORLD_RANK
  export JAX_LOCAL_DEVICE_IDS=$OMPI_COMM_WORLD_LOCAL_RANK
fi
exec python train.py --distributed "$@"
