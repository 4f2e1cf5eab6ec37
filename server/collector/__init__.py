"""The collector: the only process that opens Aim's repositories."""
