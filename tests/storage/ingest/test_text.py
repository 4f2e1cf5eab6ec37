from __future__ import annotations

import gzip
import io
import itertools
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet  # type: ignore[import-untyped]
import pytest
import tokenizers
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcplat.datasets.tokenizer import ByteTokenizer, tokenizer_of
from hpcplat.datasets.version import DatasetVersion
from hpcplat.errors import InvalidError, NotFoundError, UnavailableError
from storage.ingest import sources
from storage.ingest.documents import documents
from storage.ingest.options import IngestOptions, Splitting, TextOptions
from storage.ingest.sources import cut, stamped
from storage.ingest.zstd_file import ZstdFile

Ingest = Callable[..., DatasetVersion]


def texts_of(version: DatasetVersion, split: str = "train") -> list[str]:
    part = version.split(split)
    tokenizer = tokenizer_of(version.folder, part.attributes)
    ends = part["documents"].all_rows().tolist()
    tokens = part["tokens"].all_rows()
    pairs = itertools.pairwise(ends)
    return [tokenizer.decode(tokens[start:stop]) for start, stop in pairs]


def records(corpus: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in corpus.read_text().splitlines()]


def test_documents_come_back_in_order(ingest_text: Ingest, corpus: Path) -> None:
    version = ingest_text([corpus])
    assert texts_of(version) == [record["text"] for record in records(corpus)]
    assert version.manifest.provenance["counts"] == {"documents read": 2000}
    assert version.manifest.provenance["source_count"] == 1


@pytest.mark.parametrize("packing", ["gz", "zst", "parquet"])
def test_every_form_of_source_gives_the_same(
    ingest_text: Ingest, corpus: Path, packing: str
) -> None:
    path = corpus.with_name(f"packed.jsonl.{packing}")
    if packing == "gz":
        path.write_bytes(gzip.compress(corpus.read_bytes()))
    elif packing == "zst":
        path.write_bytes(zstandard.compress(corpus.read_bytes()))
    else:
        path = corpus.with_name("packed.parquet")
        table = pa.Table.from_pylist(records(corpus))
        pyarrow.parquet.write_table(table, path, row_group_size=300)
    assert ingest_text([path]).digest == ingest_text([corpus], name="other").digest


def test_files_are_documents_or_their_lines_are(
    ingest_text: Ingest, tmp_path: Path
) -> None:
    folder = tmp_path / "plain"
    (folder / "deep").mkdir(parents=True)
    (folder / "b.txt").write_text("one\ntwo\n")
    (folder / "deep" / "a.md").write_text("three")
    (folder / "ignored.bin").write_bytes(b"\xff")
    assert texts_of(ingest_text([folder])) == ["one\ntwo\n", "three"]
    lines = ingest_text([folder], per="line", name="lines")
    assert texts_of(lines) == ["one", "two", "three"]


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=60,
)
@given(
    lines=st.lists(st.text("ab\r€", max_size=12), max_size=30),
    size=st.integers(1, 40),
    closed=st.booleans(),
)
def test_pieces_of_a_file_hold_every_line_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lines: list[str],
    size: int,
    closed: bool,
) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes("\n".join(lines).encode() + b"\n" * closed)
    options = TextOptions(per="line")
    whole = [one.text for one in documents(stamped(str(path)), options)]
    monkeypatch.setattr(sources, "PIECE_BYTES", size)
    pieces = list(cut(stamped(str(path)), lines=True))
    found = [one.text for piece in pieces for one in documents(piece, options)]
    assert found == whole


def test_cleaning_is_counted(ingest_text: Ingest, corpus: Path) -> None:
    version = ingest_text(
        [corpus],
        shortest=10,
        longest=60,
        where="score < 0.9 and book != 'book 3'",
        options=IngestOptions(deduplicate=True),
    )
    kept = [
        record["text"]
        for record in records(corpus)
        if 10 <= len(record["text"]) <= 60
        and float(record["score"]) < 0.9
        and record["book"] != "book 3"
    ]
    expected = list(dict.fromkeys(kept))
    assert texts_of(version) == expected
    counts = version.manifest.provenance["counts"]
    assert sum(counts.values()) == 2000 + 2000 - len(expected)


def test_repeats_are_left_out_across_parts(ingest_text: Ingest, corpus: Path) -> None:
    other = corpus.with_name("other.jsonl.gz")
    other.write_bytes(gzip.compress(corpus.read_bytes()))
    version = ingest_text([corpus, other], options=IngestOptions(deduplicate=True))
    unique = dict.fromkeys(record["text"] for record in records(corpus))
    assert texts_of(version) == list(unique)
    assert version.manifest.provenance["counts"]["repeats"] == 4000 - len(unique)


class TestSplits:
    def test_every_document_is_in_one_split(
        self, ingest_text: Ingest, corpus: Path
    ) -> None:
        fractions = {"validation": 0.1, "test": 0.2}
        splitting = Splitting(fractions=fractions)
        version = ingest_text([corpus], options=IngestOptions(splitting=splitting))
        assert sorted(version.splits) == ["test", "train", "validation"]
        parts = {name: texts_of(version, name) for name in version.splits}
        joined = Counter(text for part in parts.values() for text in part)
        assert joined == Counter(record["text"] for record in records(corpus))
        assert 100 < len(parts["validation"]) < 300
        # Equal texts have equal hashes: no text is in two splits.
        assert not set(parts["train"]) & set(parts["test"])

    def test_equal_keys_stay_together(self, ingest_text: Ingest, corpus: Path) -> None:
        splitting = Splitting(fractions={"test": 0.4}, key="book")
        version = ingest_text([corpus], options=IngestOptions(splitting=splitting))
        books = {record["text"]: record["book"] for record in records(corpus)}
        train = {books[text] for text in texts_of(version, "train")}
        test = {books[text] for text in texts_of(version, "test")}
        assert not train & test
        assert train | test == set(books.values())

    def test_strata_are_divided_alike(self, ingest_text: Ingest, corpus: Path) -> None:
        splitting = Splitting(fractions={"test": 0.25}, strata="book")
        version = ingest_text([corpus], options=IngestOptions(splitting=splitting))
        assert version.split("test").samples == 500

    def test_another_seed_deals_otherwise(
        self, ingest_text: Ingest, corpus: Path
    ) -> None:
        found = []
        for seed in (0, 1):
            splitting = Splitting(fractions={"test": 0.25}, seed=seed)
            options = IngestOptions(splitting=splitting)
            found.append(set(texts_of(ingest_text([corpus], options=options), "test")))
        assert len(found[0] & found[1]) < len(found[0]) / 2

    def test_a_document_keeps_its_split_when_others_come(
        self, ingest_text: Ingest, corpus: Path
    ) -> None:
        options = IngestOptions(splitting=Splitting(fractions={"test": 0.25}))
        half = corpus.with_name("half.jsonl")
        half.write_text("".join(corpus.read_text().splitlines(True)[:1000]))
        before = set(texts_of(ingest_text([half], options=options), "test"))
        after = set(texts_of(ingest_text([corpus], options=options), "test"))
        assert before <= after


class TestBadInput:
    def test_broken_utf8_names_the_line(
        self, ingest_text: Ingest, corpus: Path
    ) -> None:
        lines = corpus.read_bytes().splitlines(keepends=True)
        lines[1233] = b'{"text": "\xff\xfe"}\n'
        corpus.write_bytes(b"".join(lines))
        with pytest.raises(InvalidError, match=r"corpus.jsonl, line 1234 is not UTF-8"):
            ingest_text([corpus])
        version = ingest_text([corpus], broken="replace")
        assert version.manifest.provenance["counts"]["characters replaced"] == 2
        assert texts_of(version)[1233] == "\ufffd\ufffd"

    def test_the_line_is_right_in_a_later_piece(
        self, ingest_text: Ingest, corpus: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lines = corpus.read_bytes().splitlines(keepends=True)
        lines[1999] = b"{broken\n"
        corpus.write_bytes(b"".join(lines))
        monkeypatch.setattr(sources, "PIECE_BYTES", 5000)
        with pytest.raises(InvalidError, match=r"line 2000 is not JSON"):
            ingest_text([corpus])

    @pytest.mark.parametrize(
        "line", ['{"other": 1}', '{"text": 5}', '["text"]', '{"text": null}']
    )
    def test_a_record_without_text_is_named(
        self, ingest_text: Ingest, tmp_path: Path, line: str
    ) -> None:
        path = tmp_path / "bad.jsonl"
        path.write_text('{"text": "fine"}\n\n' + line)
        with pytest.raises(InvalidError, match="line 3 has no text in field 'text'"):
            ingest_text([path])

    @pytest.mark.parametrize("suffix", ["jsonl.gz", "jsonl.zst", "parquet"])
    @pytest.mark.parametrize("keep", [0.5, 0.0])
    def test_a_damaged_archive_is_named(
        self, ingest_text: Ingest, tmp_path: Path, suffix: str, keep: float
    ) -> None:
        text = "".join(f'{{"text": "{n} {n * n}"}}\n' for n in range(5000)).encode()
        content = gzip.compress(text) if suffix.endswith("gz") else text
        content = zstandard.compress(text) if suffix.endswith("zst") else content
        path = tmp_path / f"cut.{suffix}"
        path.write_bytes(content[: int(len(content) * keep)] if keep else b"nonsense")
        with pytest.raises(
            (InvalidError, UnavailableError), match=r"cut\.(jsonl|parquet)"
        ):
            ingest_text([path])
        assert not list(path.parent.glob("datasets/made/versions/*"))

    def test_a_missing_source_is_named(
        self, ingest_text: Ingest, tmp_path: Path
    ) -> None:
        with pytest.raises(NotFoundError, match="nowhere"):
            ingest_text([tmp_path / "nowhere.txt"])

    def test_a_folder_without_text_is_refused(
        self, ingest_text: Ingest, tmp_path: Path
    ) -> None:
        (tmp_path / "empty").mkdir()
        with pytest.raises(InvalidError, match="No file with"):
            ingest_text([tmp_path / "empty"])

    def test_nothing_kept_is_no_version(
        self, ingest_text: Ingest, corpus: Path
    ) -> None:
        with pytest.raises(InvalidError, match="no sample that is kept"):
            ingest_text([corpus], shortest=10**6)

    def test_an_empty_split_is_refused(self, ingest_text: Ingest, corpus: Path) -> None:
        splitting = Splitting(fractions={"test": 1e-9})
        with pytest.raises(InvalidError, match="test would be empty"):
            ingest_text([corpus], options=IngestOptions(splitting=splitting))

    def test_a_filter_that_does_not_fit_fails_before_reading(
        self, ingest_text: Ingest, corpus: Path
    ) -> None:
        with pytest.raises(InvalidError, match="not allowed"):
            ingest_text([corpus], where="text.upper()")

    def test_a_tokenizer_that_is_none_fails_before_reading(
        self, ingest_text: Ingest, corpus: Path
    ) -> None:
        with pytest.raises(InvalidError, match="no tokenizer file"):
            ingest_text([corpus], tokenizer=str(corpus))
        with pytest.raises(NotFoundError):
            ingest_text([corpus], tokenizer="missing.json")


class TestTokenizers:
    @given(texts=st.lists(st.text(max_size=30), max_size=6))
    def test_bytes_come_back(self, texts: Sequence[str]) -> None:
        texts = [t for t in texts if t.encode(errors="ignore").decode() == t]
        ids, lengths = ByteTokenizer().encode(texts)
        parts = np.split(ids, np.cumsum(lengths))[:-1]
        assert [ByteTokenizer().decode(part) for part in parts] == texts
        assert [int(part[-1]) for part in parts] == [256] * len(texts)

    def test_a_file_of_the_tokenizers_library(
        self, ingest_text: Ingest, corpus: Path, bpe: Path
    ) -> None:
        version = ingest_text([corpus], tokenizer=str(bpe))
        assert texts_of(version) == [record["text"] for record in records(corpus)]
        attributes = version.split("train").attributes
        assert attributes["vocabulary_size"] == 400
        assert attributes["end_token"] == "<|endoftext|>"
        assert (version.folder / "tokenizer.json").read_bytes() == bpe.read_bytes()

    def test_an_end_token_must_exist(
        self, ingest_text: Ingest, corpus: Path, bpe: Path
    ) -> None:
        with pytest.raises(InvalidError, match="<stop>"):
            ingest_text([corpus], tokenizer=str(bpe), end_token="<stop>")


@pytest.fixture
def bpe(tmp_path: Path, corpus: Path) -> Path:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([r["text"] for r in records(corpus)], trainer)
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@given(
    parts=st.lists(st.binary(max_size=300_000).map(lambda b: b * 3), max_size=4),
    cut=st.integers(1, 30),
)
@settings(max_examples=40)
def test_zstd_files_of_many_frames_and_cut_ones(parts: list[bytes], cut: int) -> None:
    packed = b"".join(map(zstandard.compress, parts))
    decompressor = zstandard.ZstdDecompressor()
    assert ZstdFile(io.BytesIO(packed), decompressor).readall() == b"".join(parts)
    last = len(zstandard.compress(parts[-1])) if parts else 0
    if cut < last:
        with pytest.raises(EOFError, match="middle of a zstd frame"):
            ZstdFile(io.BytesIO(packed[:-cut]), decompressor).readall()
