"""`hpcplat ckpt` on checkpoints that were written for real."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from hpcplat.checkpoints.checkpointer import Checkpointer
from hpcplat.checkpoints.folder import Retention, name_of
from hpcplat.checkpoints.manifest import Origin
from hpcplat.checkpoints.shard import whole
from hpcplat.checkpoints.writing import Facts
from hpcplat.cli.main import main
from hpcplat.runfolder import RunFolder

STACKED = "model.decoder.layers.mlp.weight"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with checkpoints of steps 1 to 5."""
    folder = RunFolder(tmp_path / "run")
    folder.metrics.mkdir(parents=True)
    saver = Checkpointer(folder.checkpoints, "x", retention=Retention(9))
    for step in range(1, 6):
        tensors = {
            STACKED: torch.arange(24.0).reshape(3, 2, 4),
            "model.output.weight": torch.full((2, 2), float(step)).bfloat16(),
            "optimizer.exp_avg.model.output.weight": torch.zeros(2, 2),
        }
        facts = Facts(step, 8 * step, Origin(world_size=1), {}, {"loss": 1 / step})
        saver.save(facts, [whole(key, tensor) for key, tensor in tensors.items()])
        assert saver.wait(20)
    return folder.root


def damage(run: Path, step: int) -> None:
    (run / "checkpoints" / name_of(step) / "rank-00000.bin").write_bytes(b"?")


def test_ls_lists_the_newest_first(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ckpt", "ls", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["5", "4", "3", "2", "1"]
    assert main(["ckpt", "ls", str(run / "checkpoints"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["checkpoints"]
    assert found[0]["metrics"] == {"loss": 0.2}


def test_show_tells_of_the_newest_whole_one(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(run, 5)
    assert main(["ckpt", "show", str(run)]) == 0
    out = capsys.readouterr().out
    assert "step           4" in out
    assert f"{STACKED}\tfloat32\t3x2x4\t" in out


def test_verify_names_what_is_not_whole(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ckpt", "verify", str(run)]) == 0
    damage(run, 3)
    assert main(["ckpt", "verify", str(run)]) == 1
    told = capsys.readouterr()
    assert f"{name_of(3)}: NOT whole: rank-00000.bin has 1 bytes" in told.out
    assert "1 of 5 checkpoints are not whole" in told.err
    assert main(["ckpt", "verify", str(run), "--step", "4"]) == 0


def test_prune_keeps_the_newest_whole_one(run: Path) -> None:
    damage(run, 5)
    assert main(["ckpt", "prune", str(run), "--keep-last", "1", "--dry-run"]) == 0
    assert len(list((run / "checkpoints").iterdir())) == 5
    assert main(["ckpt", "prune", str(run), "--keep-last", "1"]) == 0
    left = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert left == [name_of(4), name_of(5)]
    assert main(["ckpt", "prune", str(run), "--keep-last", "1", "--damaged"]) == 0
    left = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert left == [name_of(4)]


def test_export_writes_what_safetensors_reads(run: Path, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    target = tmp_path / "weights.safetensors"
    assert main(["ckpt", "export", str(run), "--to", str(target), "--step", "2"]) == 0
    found = safetensors.load_file(target)
    assert sorted(found) == [
        "decoder.layers.0.mlp.weight",
        "decoder.layers.1.mlp.weight",
        "decoder.layers.2.mlp.weight",
        "output.weight",
    ]
    expected = torch.arange(8.0, 16.0).reshape(2, 4)
    assert torch.equal(found["decoder.layers.1.mlp.weight"], expected)
    assert found["output.weight"].dtype == torch.bfloat16
    assert found["output.weight"].tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert not list(tmp_path.glob(".*partial"))


def test_what_is_not_there_is_told(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ckpt", "show", str(run), "--step", "77"]) == 1
    assert "has no manifest" in capsys.readouterr().err
    empty = RunFolder(tmp_path / "empty")
    empty.metrics.mkdir(parents=True)
    assert main(["ckpt", "show", str(empty.root)]) == 1
    assert "has no whole checkpoint" in capsys.readouterr().err
    target = str(tmp_path / "x")
    assert main(["ckpt", "export", str(run), "--to", target, "--prefix", "no."]) == 1
    assert "no tensors that begin with no." in capsys.readouterr().err
