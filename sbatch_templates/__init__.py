"""Jinja templates of batch scripts, read through importlib.resources."""
