#!/usr/bin/env bash
# A process for each GPU: sbatch launch/slurm_gpus.sh --config=configs/NAME.py ...
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gres=gpu:8
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --signal=HUP@90
#SBATCH --requeue
# JAX finds the processes. It gives each its own GPU, so all must be visible: no --gpus-per-task.
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
# The processes would look for each other through a proxy. Data sets must be there already.
unset http_proxy https_proxy
srun --kill-on-bad-exit=1 python train.py --distributed "$@"
code=$?
if [ $code -eq 129 ]; then scontrol requeue "$SLURM_JOB_ID"; fi  # the time was up: go on later
exit $code
