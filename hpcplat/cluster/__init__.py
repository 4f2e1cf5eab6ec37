"""A real Slurm on this machine, for development, tests and the demo."""
