#!/usr/bin/env bash
# Several processes on this machine: launch/here.sh NUMBER --config=configs/NAME.py ...
set -uo pipefail
number=$1; shift
export JAX_COORDINATOR_ADDRESS=localhost:${PORT:-9876} JAX_NUM_PROCESSES=$number
trap 'kill $(jobs -p) 2>/dev/null; wait; exit 143' INT TERM HUP
for ((i = 0; i < number; i++)); do
  # one GPU for each process, where there are GPUs
  JAX_LOCAL_DEVICE_IDS=${JAX_LOCAL_DEVICE_IDS:-$i} JAX_PROCESS_ID=$i python train.py --distributed "$@" &
done
for ((i = 0; i < number; i++)); do
  wait -n || { code=$?; kill $(jobs -p) 2>/dev/null; wait; exit $code; }  # one has failed: end all
done
