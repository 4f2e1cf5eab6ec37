"""Ingest: sources become tasks, tasks become parts, parts become a version.

A task is a piece of the sources that one process reads on its own; its part is a
folder that appears by one rename. So a run that was killed goes on with the tasks
that have no part yet, and the number of processes changes nothing in the result.
"""
