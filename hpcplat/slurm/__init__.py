"""Slurm behind one adapter: a Scheduler protocol and what implements it."""
