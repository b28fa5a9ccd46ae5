#!/bin/bash
# Train on several machines of a Slurm cluster:  sbatch examples/cluster/slurm.sh
# One task on each machine; it starts torchrun, which starts a process for each GPU.
#SBATCH --job-name=clearformer
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --requeue
# A warning before the end of the time: every rank stops after the same step, with a checkpoint.
#SBATCH --signal=TERM@120

set -euo pipefail

# All of these must lie where every machine sees them.
DATA=${DATA:-$HOME/my.txt}
OUT=${OUT:-$HOME/runs/mine}
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$HOME/.cache}

HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

# The same command for the first start and for every one after it: --resume goes on, or starts.
srun --kill-on-bad-exit=1 torchrun \
    --nnodes "$SLURM_NNODES" --nproc-per-node "${SLURM_GPUS_ON_NODE:-8}" --max-restarts 10 \
    --rdzv-backend c10d --rdzv-endpoint "$HEAD:29400" --rdzv-id "$SLURM_JOB_ID" \
    -m clearformer train gpt2-xl --data "$DATA" --out "$OUT" --resume \
    --parallel fsdp2 --batch-size 512 --epochs 1
