#!/bin/bash
# Stands before the real sbatch and does to a job what its name says, once.
# REAL, TRIED and SERVICE are filled in by the test.
script=$(cat)
fault=$(sed -n 's/^#SBATCH --job-name="\{0,1\}\([a-z_]*\)\.[0-9]*.*/\1/p' <<<"$script")
name=$(sed -n 's/^#SBATCH --job-name="\{0,1\}\([a-z_]*\.[0-9]*\).*/\1/p' <<<"$script")
real() { REAL "$@" <<<"$script"; }

# The second time nothing is wrong (but a refusal stays one).
mkdir "TRIED/$name" 2>/dev/null || [ "$fault" = refused ] || fault=ok

case $fault in
  refused) echo 'sbatch: error: Batch job submission failed: Invalid partition name specified' >&2; exit 1 ;;
  unreached) echo 'sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)' >&2; exit 1 ;;
  timeout_before) sleep 60 ;;
  timeout_after) real "$@" >/dev/null; sleep 60 ;;
  noise_on_stderr) echo 'sbatch: warning: the moon is full' >&2; real "$@" ;;
  noise_on_stdout) echo 'Welcome to the cluster!'; real "$@" ;;
  reply_lost) real "$@" >/dev/null ;;
  reply_cut) real "$@" | head -c 1 >/dev/null; exit 1 ;;
  cut_off_before) echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1 ;;
  cut_off_after) real "$@" >/dev/null; echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1 ;;
  killed_before) kill -KILL $$ ;;
  killed_after) real "$@" >/dev/null; kill -KILL $$ ;;
  wrong_number) real "$@" >/dev/null; echo 999999 ;;
  service_killed_before) kill -KILL $PPID; exit 1 ;;
  service_killed_after) real "$@" >/dev/null; kill -KILL $PPID; exit 1 ;;
  service_killed_orphan) kill -KILL $PPID; sleep 0.5; real "$@" >/dev/null ;;
  late_twin)
    ( trap '' HUP; exec </dev/null >/dev/null 2>&1; sleep 9; real "$@" ) &
    disown
    kill -KILL $$ ;;
  *) real "$@" ;;
esac
