"""Submitting as the person who asked: directly, through sudo, or through slurmrestd."""
