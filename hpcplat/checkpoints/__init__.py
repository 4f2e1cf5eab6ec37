"""Checkpoints that are whole: sharded, hashed, free of the layout that wrote them."""
