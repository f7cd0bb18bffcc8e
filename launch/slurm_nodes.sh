#!/usr/bin/env bash
# A process for each node, with all its GPUs: sbatch launch/slurm_nodes.sh --config=configs/NAME.py ...
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
#SBATCH --cpus-per-task=64
#SBATCH --time=04:00:00
#SBATCH --signal=HUP@90
#SBATCH --requeue
export JAX_LOCAL_DEVICE_IDS=0,1,2,3,4,5,6,7  # JAX would take one GPU for each process
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
# The processes would look for each other through a proxy. Data sets must be there already.
unset http_proxy https_proxy
srun --kill-on-bad-exit=1 python train.py --distributed "$@"
code=$?
if [ $code -eq 129 ]; then scontrol requeue "$SLURM_JOB_ID"; fi  # the time was up: go on later
exit $code
