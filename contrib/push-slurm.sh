#!/usr/bin/env bash
# The experiments of parallel push as a Slurm array: one task for each job, on any number of machines that share this
# directory. Submit it with the number of jobs, then write the page:
#
#     outpour-lab bench push jobs > jobs.txt
#     sbatch --array=1-$(wc -l < jobs.txt)%200 contrib/push-slurm.sh
#     outpour-lab bench push all page
#
# The last command finds all jobs done and only puts together what they left. Options such as --tasks have to be the
# same in all three; set OPTIONS for those of the array. The program has to be the same file on all machines, as jobs of
# another build are not taken for its own. Sites that limit the size of arrays want it in parts.
#SBATCH --job-name=outpour-push
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --mem=2G
#SBATCH --time=01:00:00
# In the directory of the submission, which there is: Slurm makes none.
#SBATCH --output=push-%A-%a.log
set -euo pipefail
name=$(sed -n "${SLURM_ARRAY_TASK_ID:?only inside of an array}p" jobs.txt)
[ -n "$name" ] || { echo "jobs.txt has no line $SLURM_ARRAY_TASK_ID" >&2; exit 2; }
# shellcheck disable=SC2086 # options are words
exec outpour-lab bench push --job "$name" ${OPTIONS:-}
