"""Trains GPT-class models with Megatron-Core, on GPUs and, by the same path, on CPUs."""
