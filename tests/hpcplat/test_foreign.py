from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from hpcplat.foreign import object_in, printable, read_object
from hpcplat.tracking.gpu_tally import GpuTally, tally_of
from hpcplat.tracking.record import decode


@pytest.mark.parametrize(
    "content",
    [b"", b"[1]", b"\xff", b"[" * 200_000, b'{"a":' * 200_000, b"NaN", b"null"],
)
def test_what_is_no_object_is_none(content: bytes) -> None:
    assert read_object(content) is None


def test_an_object_is_what_json_says() -> None:
    assert read_object(b'{"a": [1, "\\u00e9"]}') == {"a": [1, "é"]}
    assert read_object('{"a": 1}') == {"a": 1}
    assert read_object('{"a": NaN, "b": -Infinity}') == {"a": None, "b": None}


def test_a_file_that_is_not_there_has_no_object(tmp_path: Path) -> None:
    assert object_in(tmp_path / "none") is None
    (tmp_path / "some").write_text('{"a": 1}')
    assert object_in(tmp_path / "some") == {"a": 1}


def test_words_move_no_cursor() -> None:
    assert printable("a\x1b[2J\0\ud800é\n") == "a [2J  é "
    assert printable("a\tb", "?") == "a?b"


def test_a_tally_of_other_types_is_none() -> None:
    assert tally_of(b'{"samples": 4, "idle": 1}') == GpuTally(4, 1)
    for odd in (b'{"samples": 1e400, "idle": 1}', b"[" * 200_000, b'{"samples": "4"}'):
        assert tally_of(odd) == GpuTally()


def test_a_line_of_metrics_that_somebody_made_up_is_damaged() -> None:
    number = b'{"time": 1, "step": 1, "values": {"a": 1' + b"0" * 400 + b"}}"
    for body in (b"[" * 200_000, number):
        assert decode(b"%08x %b\n" % (zlib.crc32(body), body)) is None
