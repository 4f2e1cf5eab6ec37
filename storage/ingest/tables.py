"""Rows of tables, arrays and databases, in batches of named columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcplat.errors import InvalidError, UnavailableError
from storage.ingest.documents import parquet_file
from storage.ingest.options import ColumnOptions
from storage.ingest.sources import Piece, is_url, needs, opened, without_secrets

Batch = Mapping[str, npt.NDArray[Any]]

SUFFIXES = (".npy", ".npz", ".parquet", ".arrow", ".feather", ".csv", ".csv.gz")

_ROWS = 65_536


def is_database(path: str) -> bool:
    """Say whether a source is a database's URL (``postgresql://``, ``sqlite:///``)."""
    scheme = path.partition("://")[0].partition("+")[0]
    return scheme in {"sqlite", "postgresql", "mysql", "mariadb", "oracle", "mssql"}


def batches(piece: Piece, options: ColumnOptions) -> Iterator[Batch]:
    """Yield the rows of a source as columns: numbers, or words (of type object)."""
    if is_database(piece.path):
        return _of_database(piece, options)
    name = piece.path.lower()
    for suffix, reader in _READERS.items():
        if name.endswith(suffix):
            return reader(piece)
    raise InvalidError(
        f"{without_secrets(piece.path)} is no table that can be read here.",
        f"Use one of: {', '.join(SUFFIXES)}.",
    )


def _of_npy(piece: Piece) -> Iterator[Batch]:
    name = PurePosixPath(piece.path).name.removesuffix(".npy")
    if not is_url(piece.path):  # not read as a whole: it may not fit into memory
        yield from _in_rows({name: _loaded(piece.path, piece)}, piece)
        return
    with opened(piece.path) as file:
        values = _loaded(file, piece)
    yield from _in_rows({name: values}, piece)


def _of_npz(piece: Piece) -> Iterator[Batch]:
    with opened(piece.path) as file:
        found = _loaded(file, piece)
        columns = {name: found[name] for name in found.files}
    yield from _in_rows(columns, piece)


def _loaded(file: Any, piece: Piece) -> Any:  # noqa: ANN401 (an array, or several)
    try:
        if isinstance(file, str):
            return np.load(file, allow_pickle=False, mmap_mode="r")
        return np.load(file, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InvalidError(
            f"{without_secrets(piece.path)} is not a whole NumPy file ({error}).",
            "Save it again with numpy.save; Python objects are not read.",
        ) from error


def _in_rows(columns: Batch, piece: Piece) -> Iterator[Batch]:
    lengths = {len(values) if values.ndim else -1 for values in columns.values()}
    if len(lengths) != 1 or -1 in lengths:
        raise InvalidError(
            f"The arrays of {without_secrets(piece.path)} differ in length.",
            "Give all arrays of a file the same number of rows.",
        )
    for start in range(0, lengths.pop(), _ROWS):
        yield {name: values[start : start + _ROWS] for name, values in columns.items()}


def _of_parquet(piece: Piece) -> Iterator[Batch]:
    with opened(piece.path) as file:
        table = parquet_file(without_secrets(piece.path), file)
        for batch in table.iter_batches(batch_size=_ROWS):
            yield _from_arrow(batch, piece)


def _of_arrow(piece: Piece) -> Iterator[Batch]:
    ipc = needs("pyarrow.ipc")
    arrow = needs("pyarrow")
    with opened(piece.path) as file:
        try:
            reader = ipc.open_file(file)
        except arrow.ArrowInvalid as error:
            raise InvalidError(
                f"{without_secrets(piece.path)} is not an Arrow file ({error}).",
                "Write it with pyarrow.feather or pyarrow.ipc.new_file.",
            ) from error
        for number in range(reader.num_record_batches):
            yield _from_arrow(reader.get_batch(number), piece)


def _of_csv(piece: Piece) -> Iterator[Batch]:
    csv, arrow = needs("pyarrow.csv"), needs("pyarrow")
    with opened(piece.path) as file:
        try:
            for batch in csv.open_csv(file):
                yield _from_arrow(batch, piece)
        except arrow.ArrowInvalid as error:
            raise InvalidError(
                f"{without_secrets(piece.path)} is not a table ({error}).",
                "Give every line the same columns, and the first their names.",
            ) from error


_READERS: Mapping[str, Callable[[Piece], Iterator[Batch]]] = {
    ".npy": _of_npy,
    ".npz": _of_npz,
    ".parquet": _of_parquet,
    ".arrow": _of_arrow,
    ".feather": _of_arrow,
    ".csv": _of_csv,
    ".csv.gz": _of_csv,
}


def _from_arrow(batch: Any, piece: Piece) -> Batch:  # noqa: ANN401 (no types)
    names = batch.schema.names
    return {
        name: _column(column, name, without_secrets(piece.path))
        for name, column in zip(names, batch.columns, strict=True)
    }


def _column(column: Any, name: str, place: str) -> npt.NDArray[Any]:  # noqa: ANN401
    types = needs("pyarrow.types")
    if column.null_count:
        raise InvalidError(
            f"{place}: column {name} has {column.null_count} rows without a value.",
            "Fill or leave them out before, or choose other columns with --column.",
        )
    kind = column.type
    if types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if (
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
    ):
        return _rectangle(column, name, place)
    if types.is_temporal(kind):
        column = column.cast(needs("pyarrow").int64())
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _rectangle(column: Any, name: str, place: str) -> npt.NDArray[Any]:  # noqa: ANN401
    compute = needs("pyarrow.compute")
    lengths = np.unique(
        compute.list_value_length(column).to_numpy(zero_copy_only=False)
    )
    if len(lengths) > 1:
        raise InvalidError(
            f"{place}: the lists in column {name} differ in length.",
            "Give all one length.",
        )
    flat = column.flatten()
    values = _column(flat, name, place)
    return values.reshape(len(column), -1, *values.shape[1:])


def _of_database(piece: Piece, options: ColumnOptions) -> Iterator[Batch]:
    alchemy = needs("sqlalchemy")
    with _answering(piece), _connected(alchemy, piece.path) as connection:
        asked = connection.execution_options(stream_results=True)
        found = asked.execute(alchemy.text(options.query))
        names = list(found.keys())
        while rows := found.fetchmany(options.number):
            columns = zip(names, zip(*rows, strict=True), strict=True)
            yield {name: _values(name, values) for name, values in columns}


@contextmanager
def _connected(alchemy: Any, url: str) -> Iterator[Any]:  # noqa: ANN401 (a module)
    engine = alchemy.create_engine(url)
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def _answering(piece: Piece) -> Iterator[None]:
    """Turn what a database or its driver refuses into an error that names it."""
    try:
        yield
    except (needs("sqlalchemy.exc").SQLAlchemyError, ModuleNotFoundError) as error:
        reason = str(error).splitlines()[0]
        raise UnavailableError(
            f"The database {without_secrets(piece.path)} does not answer ({reason}).",
            "Check the URL, its driver and the query.",
        ) from error


def _values(name: str, values: tuple[Any, ...]) -> npt.NDArray[Any]:
    missing = sum(value is None for value in values)
    if missing:
        raise InvalidError(
            f"Column {name} has {missing} rows without a value.",
            "Leave them out in the query, or fill them (COALESCE).",
        )
    if isinstance(values[0], str):
        return np.array(values, dtype=object)
    if isinstance(values[0], bytes):
        return np.array([np.frombuffer(value, np.uint8) for value in values])
    return np.array([_number(value) for value in values])


def _number(value: Any) -> Any:  # noqa: ANN401 (whatever the driver returns)
    whole = value.__class__.__name__ == "Decimal"
    return float(value) if whole else value
