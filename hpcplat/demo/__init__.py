"""The demo: a newcomer's way through all of it, by the public commands only."""
