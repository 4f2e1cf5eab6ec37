"""Training on Slurm clusters: the library that enters other people's processes."""
