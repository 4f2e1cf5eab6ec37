"""`hpcplat sbatch …`: a drop-in for sbatch, with tracking."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from hpcplat import processes
from hpcplat.cli import faults
from hpcplat.dropin import passage, shim
from hpcplat.dropin.call import Call, read_call
from hpcplat.dropin.detached import run_detached
from hpcplat.dropin.record import opening
from hpcplat.dropin.spool import SPOOL, Spool
from hpcplat.dropin.tracker import Journal, Service
from hpcplat.errors import ExitCode, HpcplatError
from hpcplat.ids import new_job_id, submission_key
from hpcplat.settings import Settings, read_settings

HELP = """Usage: hpcplat sbatch SBATCH-OPTIONS … [SCRIPT [ARGUMENTS …]]
       hpcplat sbatch --install-shim FOLDER

Runs the real sbatch with these very words: same script, same output, same exit code.
The job is tracked: hpcplat jobs, show, events, wait and cancel know it.

  --install-shim FOLDER  Write FOLDER/sbatch. Put FOLDER first on PATH and every
                         `sbatch` is tracked. Remove the file to be rid of it.
  --help, --usage        sbatch's own.
"""


def main(words: list[str]) -> int:
    """Run one call; the exit code is the real sbatch's."""
    if words[:1] == ["--install-shim"]:
        return _install(words[1:])
    if words in (["-h"], ["--help"]):
        print(HELP)
    callers = shim.callers()
    real = str(shim.real_sbatch(os.environ.get("PATH", ""), callers))
    stdin = _StandardInput()
    call = None if callers else _read(words, real, stdin)
    if call is not None:
        return _track(real, call)
    if stdin.content is None:
        sys.stdout.flush()
        os.execve(real, ["sbatch", *words], dict(_environment()))
    return passage.run(real, words, stdin.content, _environment(), _ignore)


def service(settings: Settings) -> Service | None:
    """Return the site's service, where one is configured."""
    if not settings.url:
        return None
    module = importlib.import_module("hpcplat.dropin.service")
    found: Service = module.SiteService(settings)
    return found


class _StandardInput:
    """The standard input, which can be read but once."""

    content: bytes | None = None

    def read(self) -> bytes:
        self.content = sys.stdin.buffer.read()
        return self.content


_environment = passage.original_environment


def _ignore(_: passage.Accepted) -> None:
    pass


def _read(words: Sequence[str], real: str, stdin: _StandardInput) -> Call | None:
    return read_call(
        words,
        os.environ,
        stdin.read,
        lambda: processes.run([real, "--help"], timeout=10).stdout,
    )


def _track(real: str, call: Call) -> int:
    """Announce the call, run the real sbatch, and note how it went."""
    key = submission_key(new_job_id(), 1, 0)
    # Somebody's own comment is theirs; then the job's number alone must do.
    marked = [] if call.request.has("comment") else [f"--comment={key}"]
    settings = read_settings()
    spool = Spool(settings.data / SPOOL)
    journal = Journal(
        opening(call, key, os.environ),
        spool,
        service(settings),
        waits=call.request.has("wait"),
    )
    try:
        warning = journal.announced()
    except HpcplatError as error:  # a quota: said as sbatch says what Slurm refuses
        print(f"sbatch: error: {error}", file=sys.stderr)
        return ExitCode.MENDABLE
    if warning:
        print(f"hpcplat: {warning}", file=sys.stderr)
    script = call.script if call.came_by_stdin else None
    sent = [*marked, *call.words]
    status = passage.run(real, sent, script, _environment(), journal.accepted)
    journal.ended(status)
    if journal.has_news:
        sys.stdout.flush()
        run_detached(journal.report)
    if status == ExitCode.INTERRUPTED:
        _say_what_was_submitted(journal)
    return status


def _say_what_was_submitted(journal: Journal) -> None:
    job = journal.submitted_job()
    print(
        f"hpcplat: interrupted; job {job} was submitted (scancel {job} to stop it)"
        if job
        else "hpcplat: interrupted; nothing was submitted",
        file=sys.stderr,
    )


def _install(words: Sequence[str]) -> int:
    if len(words) != 1:
        return faults.usage("--install-shim takes one folder. See hpcplat sbatch -h.")
    path = shim.install(Path(words[0]))
    first = shim.first_on_path(os.environ.get("PATH", ""))
    print(f"Wrote {path}.")
    if first is None or not shim.is_shim(first):
        print(f'Put it ahead: export PATH="{path.parent.resolve()}:$PATH"')
    return ExitCode.DONE
