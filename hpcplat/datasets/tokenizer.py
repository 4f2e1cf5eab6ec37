"""Tokenizers: bytes, built in, and files of the Hugging Face ``tokenizers`` library."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hpcplat.errors import InvalidError, NotFoundError, UnavailableError

Tokens = npt.NDArray[Any]

BYTES = "bytes"
FILE_NAME = "tokenizer.json"


class Tokenizer(Protocol):
    """What turns text into token ids and back."""

    @property
    def vocabulary_size(self) -> int:
        """Number of ids, special ones included."""
        ...

    @property
    def end_of_document(self) -> int:
        """The id that closes each document."""
        ...

    def encode(self, texts: Sequence[str]) -> tuple[Tokens, npt.NDArray[np.int64]]:
        """Return the ids of all texts, each closed, in a row; and their lengths."""
        ...

    def decode(self, ids: Tokens) -> str:
        """Return the text of some ids; special ids are left out."""
        ...


def id_type(vocabulary_size: int) -> np.dtype[Any]:
    """Return uint16 where the ids fit, else uint32."""
    return np.dtype(np.uint16 if vocabulary_size <= 2**16 else np.uint32)


class ByteTokenizer:
    """UTF-8 bytes are ids 0 … 255; 256 closes a document."""

    vocabulary_size = 257
    end_of_document = 256

    def encode(self, texts: Sequence[str]) -> tuple[Tokens, npt.NDArray[np.int64]]:
        """Return the ids of all texts, each closed, in a row; and their lengths."""
        raw = [text.encode() for text in texts]
        lengths = np.array([len(text) + 1 for text in raw], dtype=np.int64)
        # Joined with a placeholder byte, which is then made the closing id.
        joined = np.frombuffer(b"".join(text + b"\0" for text in raw), np.uint8)
        ids = joined.astype(np.uint16)
        ids[np.cumsum(lengths) - 1] = self.end_of_document
        return ids, lengths

    def decode(self, ids: Tokens) -> str:
        """Return the text of some ids; a character that is cut shows as U+FFFD."""
        return (
            ids[ids < self.end_of_document]
            .astype(np.uint8)
            .tobytes()
            .decode(errors="replace")
        )


class FileTokenizer:
    """A ``tokenizer.json`` of the Hugging Face ``tokenizers`` library.

    ``end`` is the special token that closes a document (default: the first of the
    usual names that the file has).
    """

    def __init__(self, path: Path, end: str = "") -> None:
        self._tokenizer = _load(path)
        self.end_token = end or self._usual_end(path)
        number = self._tokenizer.token_to_id(self.end_token)
        if number is None:
            raise InvalidError(
                f"{path} has no token {self.end_token!r}.", "Give --end-token."
            )
        self.end_of_document = int(number)
        # Ids can have gaps: the largest counts, not how many there are.
        ids = self._tokenizer.get_vocab(with_added_tokens=True).values()
        self.vocabulary_size = max(ids) + 1

    def encode(self, texts: Sequence[str]) -> tuple[Tokens, npt.NDArray[np.int64]]:
        """Return the ids of all texts, each closed, in a row; and their lengths."""
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        parts = [encoding.ids for encoding in encodings]
        lengths = np.array([len(part) + 1 for part in parts], dtype=np.int64)
        ids = np.empty(int(lengths.sum()), dtype=id_type(self.vocabulary_size))
        start = 0
        for part in parts:
            ids[start : start + len(part)] = part
            ids[start + len(part)] = self.end_of_document
            start += len(part) + 1
        return ids, lengths

    def decode(self, ids: Tokens) -> str:
        """Return the text of some ids; special ids are left out."""
        return str(self._tokenizer.decode(ids.tolist()))

    def _usual_end(self, path: Path) -> str:
        for name in ("<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "[SEP]"):
            if self._tokenizer.token_to_id(name) is not None:
                return name
        raise InvalidError(
            f"{path} has none of the usual closing tokens.", "Give --end-token."
        )


def _load(path: Path) -> Any:  # noqa: ANN401 (the library has no types)
    try:
        library = importlib.import_module("tokenizers")
    except ModuleNotFoundError as error:
        raise UnavailableError(
            "The library `tokenizers` is not installed.",
            "Install it: pip install 'hpcplat[ingest]'.",
        ) from error
    if not path.is_file():
        raise NotFoundError(f"There is no tokenizer {path}.", "Check the path.")
    try:
        return library.Tokenizer.from_file(str(path))
    except Exception as error:
        raise InvalidError(
            f"{path} is no tokenizer file ({error}).",
            "Save one with Tokenizer.save().",
        ) from error


def tokenizer_of(folder: Path, attributes: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer that a token version in ``folder`` was made with."""
    if attributes["tokenizer"] == BYTES:
        return ByteTokenizer()
    return FileTokenizer(folder / FILE_NAME, attributes["end_token"])
