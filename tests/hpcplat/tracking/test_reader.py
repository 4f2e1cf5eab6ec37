import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcplat.tracking import reader
from hpcplat.tracking.reader import newest, newest_before, read_all, read_chunk
from hpcplat.tracking.record import (
    Histogram,
    Lost,
    Media,
    Numbers,
    Opened,
    Record,
    Text,
    decode,
    encode,
)

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
times = st.floats(0, 4e9).map(lambda value: round(value, 6))
steps = st.integers(-(2**63), 2**63)
numbers = st.builds(
    Numbers, times, steps, st.dictionaries(names, st.floats(allow_nan=False))
)
records = st.one_of(
    numbers,
    st.builds(Opened, times, steps, names, steps, names, steps),
    st.builds(Lost, times, steps, names),
    st.builds(Text, times, steps, names, st.text()),
    st.builds(
        Histogram,
        times,
        steps,
        names,
        st.lists(st.integers(0)).map(tuple),
        st.floats(-1e300, 1e300),
        st.floats(-1e300, 1e300),
        st.integers(0),
    ),
    st.builds(Media, times, steps, names, names, names, st.text()),
)


@given(records)
def test_a_record_comes_back(record: Record) -> None:
    line = encode(record)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == record


def test_nan_comes_back() -> None:
    record = decode(encode(Numbers(1.0, 1, {"a": math.nan})))
    assert isinstance(record, Numbers)
    assert math.isnan(record.values["a"])


@given(records, st.data())
def test_a_flipped_bit_is_noticed(record: Record, data: st.DataObject) -> None:
    line = bytearray(encode(record))
    place = data.draw(st.integers(9, len(line) - 2))
    line[place] ^= 1 << data.draw(st.integers(0, 7))
    assert decode(bytes(line)) is None


@given(st.binary(max_size=200))
def test_noise_is_no_record(noise: bytes) -> None:
    assert decode(noise) is None


@settings(max_examples=50)
@given(st.lists(records, max_size=20), st.integers(1, 300), st.data())
def test_any_chunks_of_a_growing_file_give_each_record_once(
    tmp_path_factory: pytest.TempPathFactory,
    found: list[Record],
    size: int,
    data: st.DataObject,
) -> None:
    path = tmp_path_factory.mktemp("grow") / "main.0.jsonl"
    content = b"".join(encode(record) for record in found)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=5)))
    seen: list[Record] = []
    offset = 0
    for cut in [*cuts, len(content)]:
        path.write_bytes(content[:cut])
        while True:
            chunk = read_chunk(path, offset, size)
            assert chunk.damaged == 0
            seen += chunk.records
            if chunk.offset == offset:
                break
            offset = chunk.offset
    assert seen == found


def test_a_damaged_line_is_counted_and_the_rest_read(tmp_path: Path) -> None:
    path = tmp_path / "main.0.jsonl"
    lines = [encode(Numbers(1.0, step, {"loss": 1.0})) for step in range(4)]
    path.write_bytes(lines[0] + lines[1][:20] + lines[2] + lines[3][:-9])
    chunk = read_all(path)
    assert chunk.records == [decode(lines[0])]
    assert chunk.damaged == 2


def test_a_hole_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "main.0.jsonl"
    lines = [encode(Numbers(1.0, step, {"loss": 1.0})) for step in range(3)]
    hole = b"\0" * len(lines[1])
    path.write_bytes(lines[0] + hole + lines[2])
    first = read_chunk(path)
    assert len(first.records) == 1
    assert read_chunk(path, first.offset) == ([], first.offset, 0)
    assert read_all(path).damaged == 1  # nobody will fill it any more
    path.write_bytes(b"".join(lines))
    assert len(read_chunk(path, first.offset).records) == 2


def test_a_line_without_end_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MAX_LINE", 1000)
    path = tmp_path / "main.0.jsonl"
    path.write_bytes(b"x" * 5000)
    chunk = read_chunk(path, size=100)
    assert (chunk.records, chunk.offset, chunk.damaged) == ([], 1000, 1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.floats(0, 100), max_size=30).map(sorted),
    st.floats(-1, 101) | st.just(math.inf),
    st.sampled_from([1, 50, 300, 4096]),
)
def test_the_newest_before_a_time_is_found_by_halving(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    times: list[float],
    wanted: float,
    block: int,
) -> None:
    monkeypatch.setattr(reader, "BLOCK", block)
    path = tmp_path_factory.mktemp("halve") / "main.0.jsonl"
    logged = [
        Numbers(round(time, 6), step, {"loss": 0.0}) for step, time in enumerate(times)
    ]
    path.write_bytes(b"torn" + b"".join(map(encode, [Opened(0, 1, "", 0, "", 1)])))
    path.write_bytes(path.read_bytes() + b"".join(map(encode, logged)))
    before = [record for record in logged if record.time <= wanted]
    assert newest_before(path, wanted) == (before[-1] if before else None)
    assert newest(path) == tuple(logged[-1:])
    assert newest(path, 3) == tuple(logged[:-4:-1])
    with path.open("ab") as file:
        file.write(b"not whole yet")
    assert newest(path, 3) == tuple(logged[:-4:-1])
