from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.csv  # type: ignore[import-untyped]
import pyarrow.feather  # type: ignore[import-untyped]
import pyarrow.parquet  # type: ignore[import-untyped]
import pytest

from hpcplat.datasets import Columns
from hpcplat.datasets.version import DatasetVersion
from hpcplat.errors import InvalidError, UnavailableError
from storage.ingest.columns import ColumnRecipe
from storage.ingest.options import ColumnOptions, IngestOptions, Splitting

Ingest = Callable[..., DatasetVersion]

ROWS = 1000


@pytest.fixture
def table() -> dict[str, list[Any]]:
    return {
        "number": list(range(ROWS)),
        "share": [n / ROWS for n in range(ROWS)],
        "word": [f"word {n % 7}" for n in range(ROWS)],
        "flag": [n % 3 == 0 for n in range(ROWS)],
    }


def _write(path: Path, table: dict[str, list[Any]]) -> Path:
    arrow = pa.table(table)
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(arrow, path, row_group_size=99)
    elif path.suffix == ".csv":
        pyarrow.csv.write_csv(arrow, path)
    else:
        pyarrow.feather.write_feather(arrow, path, compression="uncompressed")
    return path


def _rows(version: DatasetVersion, split: str = "train") -> dict[str, Any]:
    columns = Columns(version.split(split))
    return columns.rows(np.arange(len(columns)))


@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow", "feather"])
def test_tables_become_columns(
    ingest: Ingest, tmp_path: Path, table: dict[str, list[Any]], suffix: str
) -> None:
    path = _write(tmp_path / f"table.{suffix}", table)
    version = ingest(ColumnRecipe(ColumnOptions()), [path])
    rows = _rows(version)
    np.testing.assert_array_equal(rows["number"], table["number"])
    np.testing.assert_allclose(rows["share"], table["share"])
    np.testing.assert_array_equal(rows["flag"], table["flag"])
    words = version.split("train").attributes["categories"]["word"]
    assert [words[code] for code in rows["word"]] == table["word"]


def test_lists_of_one_length_become_rectangles(ingest: Ingest, tmp_path: Path) -> None:
    values = np.arange(60, dtype=np.float32).reshape(20, 3)
    table = {"x": pa.array(values.tolist(), pa.list_(pa.float32()))}
    path = _write(tmp_path / "lists.parquet", table)
    rows = _rows(ingest(ColumnRecipe(ColumnOptions()), [path]))
    np.testing.assert_array_equal(rows["x"], values)
    ragged = _write(tmp_path / "ragged.parquet", {"x": [[1, 2], [3]]})
    with pytest.raises(InvalidError, match="x differ in length"):
        ingest(ColumnRecipe(ColumnOptions()), [ragged])


def test_numpy_files(ingest: Ingest, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(500, 4, 3)).astype(np.float32)
    np.savez(tmp_path / "both.npz", x=x, y=np.arange(500))
    rows = _rows(ingest(ColumnRecipe(ColumnOptions()), [tmp_path / "both.npz"]))
    np.testing.assert_array_equal(rows["x"], x)
    np.testing.assert_array_equal(rows["y"], np.arange(500))
    np.save(tmp_path / "x.npy", x)
    rows = _rows(ingest(ColumnRecipe(ColumnOptions()), [tmp_path / "x.npy"]))
    np.testing.assert_array_equal(rows["x"], x)


def test_databases(ingest: Ingest, tmp_path: Path) -> None:
    path = tmp_path / "rows.db"
    with sqlite3.connect(path) as database:
        database.execute("create table t (n integer, s real, w text, b blob)")
        rows = [(n, n / 2, f"w{n % 3}", bytes([n % 256, 1])) for n in range(500)]
        database.executemany("insert into t values (?, ?, ?, ?)", rows)
    database.close()
    query = "select * from t where n < 300 order by n"
    recipe = ColumnRecipe(ColumnOptions(query=query, number=77))
    version = ingest(recipe, [f"sqlite:///{path}"])
    found = _rows(version)
    np.testing.assert_array_equal(found["n"], np.arange(300))
    np.testing.assert_array_equal(found["s"], np.arange(300) / 2)
    np.testing.assert_array_equal(found["b"][:, 0], np.arange(300) % 256)
    words = version.split("train").attributes["categories"]["w"]
    assert [words[code] for code in found["w"]] == [f"w{n % 3}" for n in range(300)]


@pytest.mark.parametrize(
    ("url", "query"),
    [
        ("sqlite:////nowhere/at/all.db", "select 1"),
        ("sqlite:///:memory:", "select * from missing"),
        ("mysql://user:secret@nohost/x", "select 1"),
    ],
)
def test_a_database_that_does_not_answer(ingest: Ingest, url: str, query: str) -> None:
    with pytest.raises(UnavailableError, match="does not answer") as caught:
        ingest(ColumnRecipe(ColumnOptions(query=query)), [url])
    assert "secret" not in str(caught.value)


def test_chosen_and_filtered_rows(
    ingest: Ingest, tmp_path: Path, table: dict[str, list[Any]]
) -> None:
    path = _write(tmp_path / "table.parquet", table)
    options = ColumnOptions(columns=("number",), where="flag and word == 'word 0'")
    version = ingest(ColumnRecipe(options), [path])
    expected = [n for n in range(ROWS) if n % 21 == 0]
    rows = _rows(version)
    assert list(rows) == ["number"]
    np.testing.assert_array_equal(rows["number"], expected)
    counts = version.manifest.provenance["counts"]
    assert counts == {"filtered": ROWS - len(expected), "rows read": ROWS}


def test_splits_and_repeats(
    ingest: Ingest, tmp_path: Path, table: dict[str, list[Any]]
) -> None:
    path = _write(tmp_path / "a.parquet", table)
    again = _write(tmp_path / "b.parquet", table)
    splitting = Splitting(fractions={"test": 0.3}, key="word")
    options = IngestOptions(splitting=splitting, deduplicate=True)
    version = ingest(ColumnRecipe(ColumnOptions()), [path, again], options)
    assert version.manifest.provenance["counts"]["repeats"] == ROWS
    train, test = (_rows(version, split) for split in ("train", "test"))
    assert not set(train["word"]) & set(test["word"])
    numbers = np.concatenate([train["number"], test["number"]])
    np.testing.assert_array_equal(np.sort(numbers), np.arange(ROWS))


def test_strata_of_rows(ingest: Ingest, tmp_path: Path) -> None:
    y = np.repeat([0, 1, 2], [800, 150, 50])
    np.savez(tmp_path / "t.npz", x=np.arange(1000), y=y)
    splitting = Splitting(fractions={"test": 0.1}, strata="y")
    options = IngestOptions(splitting=splitting)
    version = ingest(ColumnRecipe(ColumnOptions()), [tmp_path / "t.npz"], options)
    assert np.bincount(_rows(version, "test")["y"]).tolist() == [80, 15, 5]


class TestBadInput:
    def test_missing_values_are_refused(self, ingest: Ingest, tmp_path: Path) -> None:
        path = _write(tmp_path / "holes.parquet", {"x": [1, None, 3]})
        with pytest.raises(InvalidError, match="column x has 1 rows without a value"):
            ingest(ColumnRecipe(ColumnOptions()), [path])

    def test_arrays_of_different_length(self, ingest: Ingest, tmp_path: Path) -> None:
        np.savez(tmp_path / "bad.npz", x=np.arange(3), y=np.arange(4))
        with pytest.raises(InvalidError, match="differ in length"):
            ingest(ColumnRecipe(ColumnOptions()), [tmp_path / "bad.npz"])

    def test_python_objects_are_not_read(self, ingest: Ingest, tmp_path: Path) -> None:
        np.save(tmp_path / "o.npy", np.array([{}], object), allow_pickle=True)
        with pytest.raises(InvalidError, match="Python objects are not read"):
            ingest(ColumnRecipe(ColumnOptions()), [tmp_path / "o.npy"])

    def test_other_types_and_shapes_in_another_file(
        self, ingest: Ingest, tmp_path: Path
    ) -> None:
        np.savez(tmp_path / "1.npz", x=np.arange(3))
        np.savez(tmp_path / "2.npz", x=np.arange(3.0))
        with pytest.raises(InvalidError, match="x"):
            ingest(ColumnRecipe(ColumnOptions()), [tmp_path])

    @pytest.mark.parametrize("suffix", ["npy", "npz", "parquet", "arrow", "csv"])
    def test_nonsense_is_named(
        self, ingest: Ingest, tmp_path: Path, suffix: str
    ) -> None:
        path = tmp_path / f"bad.{suffix}"
        path.write_bytes(b"a,b\n1,2,3\n\xff" if suffix == "csv" else b"nonsense")
        with pytest.raises(InvalidError, match=r"bad\."):
            ingest(ColumnRecipe(ColumnOptions()), [path])

    def test_a_missing_column_is_named(
        self, ingest: Ingest, tmp_path: Path, table: dict[str, list[Any]]
    ) -> None:
        path = _write(tmp_path / "table.parquet", table)
        with pytest.raises(InvalidError, match="no column absent"):
            ingest(ColumnRecipe(ColumnOptions(columns=("absent",))), [path])
        splitting = Splitting(fractions={"t": 0.5}, key="absent")
        with pytest.raises(InvalidError, match="no column absent"):
            ingest(
                ColumnRecipe(ColumnOptions()),
                [path],
                IngestOptions(splitting=splitting),
            )
