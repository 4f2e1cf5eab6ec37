"""Identifiers, where the service has always looked for them; see hpcplat.ids."""

from hpcplat.ids import KEY_PATTERN, find_key, new_job_id, submission_key

__all__ = ["KEY_PATTERN", "find_key", "new_job_id", "submission_key"]
