#!/usr/bin/env bash
# One process on each of several machines that share this folder:
# HOSTS="node1 node2" launch/by_ssh.sh --config=configs/NAME.py ...
set -uo pipefail
read -ra hosts <<< "$HOSTS"
trap 'kill $(jobs -p) 2>/dev/null; wait; exit 143' INT TERM HUP
arguments=$(for argument in "$@"; do printf ' %q' "$argument"; done)
for i in "${!hosts[@]}"; do
  variables="JAX_COORDINATOR_ADDRESS=${hosts[0]}:${PORT:-9876} JAX_NUM_PROCESSES=${#hosts[@]} JAX_PROCESS_ID=$i"
  ssh -tt "${hosts[i]}" "cd $(printf %q "$PWD") && $variables python train.py --distributed $arguments" &
done
for i in "${!hosts[@]}"; do
  wait -n || { code=$?; kill $(jobs -p) 2>/dev/null; wait; exit $code; }  # one has failed: end all
done
