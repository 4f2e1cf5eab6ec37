"""Submission through sudo: an ordinary service, and one program that it may run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hpcplat import processes
from hpcplat.errors import ForbiddenError, InvalidError, UnavailableError
from hpcplat.processes import Completed
from hpcplat.runfiles import RunFile
from hpcplat.runfolder import RunFolder
from hpcplat.slurm import refusals, sbatch
from hpcplat.slurm.answers import UnreadableError
from hpcplat.slurm.commandline import CommandLine
from hpcplat.slurm.scheduler import Submission, SubmittedJob
from server.identity import sudoers

# sudo's own variables are its; it needs none of ours.
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}


class SudoSlurm(CommandLine):
    """Slurm's commands, where each submission runs as its person, or not at all.

    ``conf``: root's own slurm.conf, if it is not where Slurm looks. All that is no
    submission runs as the service, which the site makes an operator of Slurm.
    """

    def __init__(
        self,
        conf: Path | None = None,
        *,
        environ: Mapping[str, str],
        program: Path = sudoers.PROGRAM,
        timeout: float = 60,
    ) -> None:
        super().__init__(conf, environ=environ)
        self._slurm_conf = str(conf) if conf is not None else ""
        self._program = program
        self._patience = timeout

    def fill(
        self, folder: RunFolder, files: Sequence[RunFile], user: str | None
    ) -> None:
        """Write files into a run folder as the person."""
        self._asked(
            user,
            {
                "verb": "fill",
                "folder": str(folder.root),
                "files": [
                    {"path": str(f.path), "content": f.content, "mode": f.mode}
                    for f in files
                ],
            },
        )

    def submit(self, submission: Submission) -> SubmittedJob:
        """Run sbatch as the person; the same promises as the command line's."""
        try:
            done = self._sbatch(submission, "submit")
        except processes.ProgramTimeoutError as error:
            raise refusals.doubt(error.what.rstrip(".")) from error
        if not done.ok:
            raise refusals.submission_error(done)
        try:
            return sbatch.parse(done.stdout)
        except UnreadableError as error:
            raise refusals.doubt(error.what.rstrip(".")) from error

    def estimate(self, submission: Submission) -> datetime | None:
        """Ask as the person when the job would start."""
        done = self._sbatch(submission, "estimate")
        if not done.ok:
            raise refusals.error_of(done, InvalidError)
        return sbatch.parse_estimate(done.stderr, datetime.now(UTC))

    def _sbatch(self, submission: Submission, verb: str) -> Completed:
        answer = self._asked(
            submission.user,
            {
                "verb": verb,
                "folder": submission.folder,
                "options": list(submission.options),
                "script": submission.script,
                "slurm_conf": self._slurm_conf,
            },
        )
        return Completed(
            ("sbatch",), int(answer["status"]), answer["stdout"], answer["stderr"]
        )

    def _asked(self, user: str | None, request: Mapping[str, Any]) -> Any:  # noqa: ANN401
        if user is None:  # fail closed: the service never runs a job as itself
            raise ForbiddenError(
                "This service submits nothing as itself.", "Ask as a person."
            )
        done = processes.run(
            sudoers.argv(user, self._program),
            timeout=self._patience,
            stdin=json.dumps(request),
            env=_ENVIRONMENT,
        )
        if done.status == 2 and done.stderr.startswith("as-person:"):
            raise InvalidError(f"{done.complaint()}.", "Change the request.")
        if not done.ok:
            raise UnavailableError(
                f"sudo did not let the service act as {user} ({done.complaint()}).",
                "See that the sudoers file is in place, and that the person is in its"
                " group.",
            )
        return json.loads(done.stdout)
