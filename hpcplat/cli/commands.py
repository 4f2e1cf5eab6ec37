"""The one table of commands; it loads none of them."""

from __future__ import annotations

from typing import Final, NamedTuple


class Entry(NamedTuple):
    """Where a command lives (a module with a Typer ``app``), and its help line."""

    module: str
    help: str
    group: str = "More"


COMMANDS: dict[str, Entry] = {
    "submit": Entry("hpcplat.cli.submit", "Submit a job from a spec file.", "Jobs"),
    "run": Entry("hpcplat.cli.run", "Run a command as a job.", "Jobs"),
    "jobs": Entry("hpcplat.cli.jobs", "List jobs.", "Jobs"),
    "show": Entry("hpcplat.cli.show", "Show a job and its attempts.", "Jobs"),
    "logs": Entry("hpcplat.cli.logs", "Print what a job prints; -f follows.", "Jobs"),
    "events": Entry("hpcplat.cli.events", "Print what happened to a job.", "Jobs"),
    "wait": Entry("hpcplat.cli.wait", "Wait until jobs are over.", "Jobs"),
    "cancel": Entry("hpcplat.cli.cancel", "Cancel jobs.", "Jobs"),
    "requeue": Entry("hpcplat.cli.requeue", "Run jobs once more.", "Jobs"),
    "data": Entry("hpcplat.cli.data", "Datasets: versions in Zarr shards.", "Data"),
    "layout": Entry("hpcplat.cli.layout", "Layouts of a model, with memory.", "Jobs"),
    "ckpt": Entry("hpcplat.cli.ckpt", "Checkpoints: list, verify, export.", "Runs"),
    "import": Entry(
        "hpcplat.cli.importing", "Turn an sbatch script into a spec.", "Jobs"
    ),
    "runs": Entry("hpcplat.cli.runs", "What made each run, what differs.", "Runs"),
    "spec": Entry("hpcplat.cli.spec", "Job specs: schema, templates, checks.", "Jobs"),
    "plot": Entry("hpcplat.cli.plot", "Draw what a job logged.", "Runs"),
    "ui": Entry("hpcplat.cli.ui", "Open the Aim UI.", "Runs"),
    "serve": Entry("hpcplat.cli.serve", "Run the service.", "Site"),
    "db": Entry("hpcplat.cli.db", "The service's database.", "Site"),
    "top": Entry("hpcplat.cli.top", "Queue, GPUs and progress, live.", "Jobs"),
    "login": Entry("hpcplat.cli.login", "Use a site's service.", "Site"),
    "logout": Entry("hpcplat.cli.logout", "Forget it again.", "Site"),
    "doctor": Entry(
        "hpcplat.cli.doctor", "Check the site and your place in it.", "Site"
    ),
    "nodes": Entry("hpcplat.cli.nodes", "Show GPUs and who uses them.", "Site"),
    "quota": Entry("hpcplat.cli.quota", "What you may have, and its use.", "People"),
    "usage": Entry("hpcplat.cli.usage", "GPU-hours by workspace, member.", "People"),
    "admin": Entry("hpcplat.cli.admin", "Sync workspaces with Slurm.", "Site"),
    "workspace": Entry("hpcplat.cli.workspace", "Teams and their members.", "People"),
    "demo": Entry("hpcplat.cli.demo", "Train a GPT here, and see a node die."),
    "cluster": Entry("hpcplat.cli.cluster", "A real Slurm on this machine."),
}

# Their words are another program's to parse: a module with ``main(words) -> status``.
DROP_INS: Final = {
    "sbatch": Entry("hpcplat.cli.sbatch", "sbatch itself, tracked.", "Jobs"),
}
