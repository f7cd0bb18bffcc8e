#!/usr/bin/env bash
# All machines of a TPU slice: TPU=NAME ZONE=ZONE launch/tpu.sh --config=configs/NAME.py --workdir=gs-mounted/NAME ...
# JAX finds the processes.
gcloud compute tpus tpu-vm ssh "$TPU" --zone="$ZONE" --worker=all --command="cd flax_attn && python train.py --distributed $(printf '%q ' "$@")"
