"""sbatch's own language: its options, its command line, its #SBATCH lines. All pure."""
