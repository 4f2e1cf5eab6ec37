"""sbatch with tracking: the real one runs untouched, and what it did is written down."""
