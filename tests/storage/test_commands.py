"""`hpcplat data …` as people type it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hpcplat import eventlog
from hpcplat.allocation import RankPlacement, rank_variables
from hpcplat.cli.main import main
from hpcplat.datasets.version import open_version
from hpcplat.runfolder import RunFolder

Run = Callable[..., str]


@pytest.fixture
def run(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run a command line, check its exit code, return what it printed."""
    monkeypatch.setenv("HPCPLAT_DATASETS", str(root))

    def command(*words: str, status: int = 0) -> str:
        assert main(["data", *words]) == status, capsys.readouterr().err
        printed = capsys.readouterr()
        return printed.err if status else printed.out

    return command


@pytest.fixture
def text(run: Run, corpus: Path) -> str:
    words = ["--name", "text", "--text", str(corpus), "--split", "test=0.1"]
    return run("ingest", *words, "--processes", "1")


def test_ingest_says_what_came_of_it(text: str, root: Path) -> None:
    lines = text.splitlines()
    assert lines[0].split() == ["documents", "read", "2,000"]
    assert lines[-1] == f"text@{open_version('text', root).digest[:12]}"


def test_ls(run: Run, text: str, corpus: Path) -> None:
    name, version, tags, kind, samples, *_ = run("ls").split("\t")
    assert (name, tags, kind, samples) == ("text", "latest", "tokens", "2,000")
    run("ingest", "--name", "text", "--text", str(corpus), "--shortest", "12")
    rows = json.loads(run("ls", "text", "--json"))
    assert [row["tags"] for row in rows] == ["", "latest"]
    assert rows[0]["digest"] == version


def test_ls_of_nothing(run: Run) -> None:
    assert run("ls").startswith("No dataset under ")
    assert "There is no dataset nothing" in run("ls", "nothing", status=1)


def test_head_prints_text(run: Run, text: str) -> None:
    out = run("head", "text", "-n", "2", "--split", "train")
    assert out.startswith("--- document 0, ")
    assert "Text " in out


def test_show(run: Run, text: str) -> None:
    out = run("show", "text")
    assert "kind       tokens" in out
    assert "corpus.jsonl" in out
    assert "--- document" in out
    manifest = json.loads(run("show", "text", "--json"))
    assert len(manifest["digest"]) == 64


def test_show_draws_pictures(run: Run, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for number in range(20):
        folder = tmp_path / "pictures" / f"class {number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (9, 7, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:02}.png")
    pictures = str(tmp_path / "pictures")
    run("ingest", "--name", "pictures", "--images", pictures, "--processes", "1")
    out = tmp_path / "sheet.png"
    printed = run("show", "pictures", "-n", "12", "--out", str(out))
    assert f"12 images of train in {out}" in printed
    with Image.open(out) as image:
        image.load()
        width, height = image.size
        pixels = np.asarray(image)
    # Seven pixels, four times as large, 8 in a row and 2 between.
    assert (width, height) == (8 * (7 * 4 + 2) + 2, 2 * (9 * 4 + 2) + 2)
    expected = (
        open_version("pictures", tmp_path / "datasets")
        .split("train")["images"]
        .all_rows()
    )
    first = pixels[2 : 2 + 36 : 4, 2 : 2 + 28 : 4]
    assert any((first == image).all() for image in expected)
    assert "need a terminal with colours" in run("show", "pictures")
    assert run("head", "pictures", "-n", "1") == "0\t[9, 7, 3]\tclass 0\n"


def test_columns_are_printed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,word\n1,one\n2.5,two\n")
    run("ingest", "--name", "t", "--table", str(tmp_path / "t.csv"))
    assert run("head", "t") == "row\tword\tx\n0\tone\t1\n1\ttwo\t2.5\n"


def test_databases(run: Run, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "d.db") as database:
        database.execute("create table t as select 1 as n union select 2")
    database.close()
    url = f"sqlite:///{tmp_path}/d.db"
    assert "needs a query" in run("ingest", "--name", "d", "--sql", url, status=1)
    run("ingest", "--name", "d", "--sql", url, "--query", "select n from t")
    assert run("head", "d") == "row\tn\n0\t1\n1\t2\n"


def test_verify_tag_and_rm(run: Run, text: str, root: Path) -> None:
    assert "every byte as written" in run("verify", "text")
    run("tag", "text", "v1")
    assert "tagged v1" in run("rm", "text", status=1)
    shard = open_version("text@v1", root).folder / "train/tokens/c.0"
    shard.chmod(0o644)
    content = bytearray(shard.read_bytes())
    content[1000] ^= 1
    shard.write_bytes(content)
    assert main(["data", "verify", "text"]) == 1
    run("tag", "text", "v1", "--remove")
    run("rm", "text")
    assert "has no" in run("show", "text", status=1)


def test_diff(run: Run, text: str, corpus: Path, root: Path) -> None:
    first = open_version("text", root).digest
    assert run("diff", "text", f"text@{first[:9]}") == "The same version.\n"
    run("ingest", "--name", "text", "--text", str(corpus), "--longest", "40")
    assert main(["data", "diff", f"text@{first[:9]}", "text"]) == 1


def test_diff_says_what(
    run: Run,
    text: str,
    corpus: Path,
    root: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = open_version("text", root).digest
    run("ingest", "--name", "text", "--text", str(corpus), "--longest", "40")
    main(["data", "diff", f"text@{first[:9]}", "text"])
    out = capsys.readouterr().out
    assert "option longest: 0 -> 40" in out
    assert "splits test:" in out
    assert "files only in the second:" in out


def test_staging_inside_a_job_is_told_in_its_events(
    run: Run, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.root.mkdir()
    place = RankPlacement(0, 1, 0, 1, 0, "127.0.0.1", 1, folder, 3, 0, "key", None)
    for name, value in rank_variables(place).items():
        monkeypatch.setenv(name, value)
    local = tmp_path / "local"
    found = Path(run("stage", "text", "--local", str(local)).strip())
    assert open_version(found).kind == "tokens"
    events, _ = eventlog.read_all(folder.events)
    assert events[-1].kind == "data-staged"
    assert events[-1].attempt == 3
    assert "to 100 %" in events[-1].what
    assert run("evict", "--local", str(local), "--days", "0") == f"{found.name}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Use one of --text, --images, --table, --sql"),
        (["--text", "a", "--table", "b"], "Use one of"),
        (["--text", "{corpus}", "--split", "x"], "is no split"),
        (["--text", "{corpus}", "--split", "a=0.9", "--split", "b=0.2"], "a whole"),
        (["--text", "{corpus}", "--broken", "skip"], "Use fail or replace"),
        (["--images", "{corpus}", "--size", "3"], "HEIGHTxWIDTH"),
        (["--text", "{corpus}", "--where", "x("], "is no expression"),
        (["--text", "{corpus}", "--append"], "has no version latest"),
    ],
)
def test_what_cannot_be_right_is_said(
    run: Run, corpus: Path, words: list[str], said: str
) -> None:
    given = [word.format(corpus=corpus) for word in words]
    assert said in run("ingest", "--name", "x", *given, status=1)


def test_a_name_that_is_no_folders_name(run: Run, corpus: Path) -> None:
    words = ["--name", "../up", "--text", str(corpus)]
    assert "cannot name a dataset" in run("ingest", *words, status=1)


def test_without_the_extra_it_says_so() -> None:
    program = (
        "import sys; sys.modules['numpy'] = None;"
        "from hpcplat.cli.main import main; sys.exit(main(['data', 'ls']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "`hpcplat data` needs numpy" in done.stderr
    assert "pip install 'hpcplat[data]'" in done.stderr


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--name", "../../x"), "'../../x' cannot name a dataset."),
        (("--name", "../../x", "--nodes", "2"), "'../../x' cannot name a dataset."),
        (("--name", "x", "--tag", "../y"), "'../y' cannot name a tag."),
        (("--name", "x", "--split", "../z=0.1"), "'../z' cannot name a split."),
    ],
)
def test_names_are_looked_at_before_any_work(
    run: Run, tmp_path: Path, words: tuple[str, ...], what: str
) -> None:
    nowhere = str(tmp_path / "nowhere.txt")
    assert what in run("ingest", "--text", nowhere, *words, status=1)
