"""Rows of files and folders as lines of JSON: JSON lines and arrays, CSV, Parquet, Arrow, gzip, folders of `datasets`.

A folder is one that `datasets.save_to_disk` wrote (of one split, or of several), or one with files that are named after
their split: train.jsonl, test.parquet, data/train-00000-of-00002.parquet.
"""

from __future__ import annotations

import csv
import datetime
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from assay.core.errors import AssayError
from assay.core.extras import require

MAX_LINE = 1 << 24
TABLES = (".parquet", ".arrow")
SUFFIXES = (".jsonl", ".json", ".jsonl.gz", ".json.gz", ".csv", *TABLES)
TRAIN, HELD_OUT = ("train", "training"), ("test", "validation", "valid", "val", "dev", "eval")
"""Names of splits; of several held-out ones the first counts."""


# ---------------------------------------------------------------------------------------------------- one file
def lines_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yields the numbered rows of a file, a folder of one split, or of files between * in their order; refuses a line
    that is longer than 16 MiB.
    """
    number = 0
    for file in files_of(path):
        for line in lines_in(file):
            number += 1
            if len(line) > MAX_LINE:
                raise AssayError(f"{path}, line {number} is longer than {MAX_LINE} bytes. Is this a JSON-lines file?")
            yield number, line


def files_of(path: Path) -> list[Path]:
    """Returns the files that a path names; AssayError if there are none."""
    if path.is_file():
        return [path]
    found = sorted(path.parent.glob(path.name)) if "*" in path.name else []
    if (path / "state.json").is_file():
        names = [str(one.get("filename")) for one in json_of(path / "state.json").get("_data_files", [])]
        found = [path / name for name in names if name == Path(name).name and (path / name).is_file()]
        if len(found) < len(names):
            raise AssayError(f"{path} lacks some of its files {', '.join(names[:3])}. Save the dataset again")
    if not found:
        raise AssayError(f"there is no file '{path}'. Check the path (relative to {Path.cwd()})")
    return found


def lines_in(file: Path) -> Iterator[bytes]:
    """Yields the rows of one file, by its name and its first character."""
    if file.suffix in TABLES:
        yield from table_lines(file)
        return
    if file.suffix == ".csv":
        yield from csv_lines(file)
        return
    try:
        with opened(file) as stream:
            start = stream.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
        with opened(file) as stream:
            if start == b"[" and file.name.removesuffix(".gz").endswith(".json"):
                yield from array_lines(file, stream.read())
                return
            while line := stream.readline(MAX_LINE + 1):
                yield line
    except (OSError, EOFError, zlib.error) as error:
        raise AssayError(f"{file} cannot be read ({error}). Is it complete?") from error


def opened(file: Path) -> IO[bytes]:
    """Returns the file for reading, uncompressed if it is gzipped."""
    return gzip.open(file) if file.suffix == ".gz" else file.open("rb")  # type: ignore[return-value]


def array_lines(file: Path, content: bytes) -> Iterator[bytes]:
    """Yields the entries of a JSON array, each as one line."""
    try:
        rows = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise AssayError(f"{file} is not a JSON array: {error}") from None
    for row in rows:
        yield json.dumps(row).encode()


def table_lines(file: Path) -> Iterator[bytes]:
    """Yields the rows of a Parquet or Arrow file; fields without a value are left out, at every depth, since a column
    of structs has each field in every row.
    """
    kind = "Parquet" if file.suffix == ".parquet" else "Arrow"
    library = require("pyarrow.parquet" if kind == "Parquet" else "pyarrow", "data", file.name)
    try:
        batches = library.ParquetFile(file).iter_batches() if kind == "Parquet" else arrow_batches(library, file)
        for batch in batches:
            for row in batch.to_pylist():
                yield json_of_row(without_none(row), file)
    except (OSError, ValueError, TypeError) as error:
        raise AssayError(f"{file} cannot be read as {kind} with texts and numbers ({error})") from error


def json_of_row(row: Mapping[str, Any], file: Path) -> bytes:
    """Returns a table's row as a line of JSON, dates as ISO texts; AssayError names a column of another type."""
    try:
        return json.dumps(row, default=iso_text).encode()
    except TypeError as error:
        for name, value in row.items():
            try:
                json.dumps(value, default=iso_text)
            except TypeError:
                what = f"{file}: column '{name}' holds {type(value).__name__}, not texts and numbers"
                raise AssayError(f"{what}. Leave the column out, or write it as text") from error
        raise


def iso_text(value: Any) -> str:
    """Returns a date or time as a text; TypeError for anything else."""
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not a text or a number")


def csv_lines(file: Path) -> Iterator[bytes]:
    """Yields the rows of a CSV file with a header as objects of texts; an empty value is left out."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.reader(iter(lambda: stream.readline(MAX_LINE), ""), strict=True)
            names = next(rows, [])
            if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
                raise AssayError(f"{file}: its header '{names[0][:60]}' has no commas. Separate the columns by commas")
            if len(set(names)) < len(names) or not all(names):
                told = ", ".join(names)[:60]
                raise AssayError(f"{file}: its header '{told}' has an empty name, or one twice. Name each column once")
            for place, row in enumerate(filter(None, rows), 1):
                if len(row) != len(names):
                    told = f"{file}, row {place} has {len(row)} values and the header {len(names)} names"
                    raise AssayError(f"{told}. Write a text with commas in quotation marks")
                yield json.dumps({name: value for name, value in zip(names, row, strict=True) if value}).encode()
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise AssayError(f"{file} cannot be read as CSV in UTF-8 ({error}). Is it complete?") from error


def arrow_batches(library: Any, file: Path) -> Iterator[Any]:
    """Yields the batches of an Arrow file: of a stream, as `datasets` writes it, or of a file with a footer."""
    require("pyarrow.ipc", "data", file.name)
    with library.memory_map(str(file)) as source:
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        if is_file:
            reader = library.ipc.open_file(source)
            yield from (reader.get_batch(place) for place in range(reader.num_record_batches))
        else:
            yield from library.ipc.open_stream(source)


def without_none(value: Any) -> Any:
    """Returns a value whose objects have no fields that are None."""
    if isinstance(value, Mapping):
        return {name: without_none(one) for name, one in value.items() if one is not None}
    return [without_none(one) for one in value] if isinstance(value, list) else value


# ---------------------------------------------------------------------------------------------------- folders
def json_of(file: Path) -> dict[str, Any]:
    """Returns the object of a small JSON file."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise AssayError(f"{file} is not JSON ({error}). Save the dataset again") from None
    return found if isinstance(found, dict) else {}


def splits_of(folder: Path) -> dict[str, str]:
    """Returns the paths of a folder's splits by their names; "" names the rows of a folder without any."""
    if (folder / "state.json").is_file():
        return {"": str(folder)}
    if (folder / "dataset_dict.json").is_file():
        names = json_of(folder / "dataset_dict.json").get("splits", [])
        return {str(name): str(folder / str(name)) for name in names}
    for inner in (folder, folder / "data"):
        files = sorted(file for file in inner.glob("*") if file.name.endswith(SUFFIXES))
        if found := named_splits(files):
            return found
        if len(files) == 1:
            return {"": str(files[0])}
    return {}


def named_splits(files: list[Path]) -> dict[str, str]:
    """Returns files by the split that begins their name; pieces -00000-of-00002 are named together by *."""
    found: dict[str, list[Path]] = {}
    for file in files:
        if match := re.fullmatch(rf"({'|'.join((*TRAIN, *HELD_OUT))})(-\d+-of-\d+)?(\.\w+)+", file.name):
            found.setdefault(match[1], []).append(file)
    for name, own in found.items():
        if len(own) > 1 and len({"-of-" in file.name and "".join(file.suffixes) for file in own} | {False}) != 2:
            raise AssayError(f"{own[0].parent} has several files of '{name}': {own[0].name}, {own[1].name}. Keep one")
    return {
        name: str(own[0] if len(own) == 1 else own[0].parent / f"{name}-*{''.join(own[0].suffixes)}")
        for name, own in found.items()
    }


def training_and_held_out(folder: Path) -> tuple[str, str]:
    """Returns the paths of a folder's training rows and of its held-out rows, "" without any. AssayError says what it
    has if there is nothing to train on.
    """
    splits = splits_of(folder)
    train = next((splits[name] for name in ("", *TRAIN) if name in splits), "")
    if not train:
        there = ", ".join(sorted(splits) or sorted(file.name for file in folder.iterdir())[:10]) or "nothing"
        what = f"'{folder}' is a folder without training rows (it has: {there})"
        raise AssayError(f"{what}. Give a file, a folder of datasets.save_to_disk, or one with train.jsonl or .parquet")
    return train, next((splits[name] for name in HELD_OUT if name in splits), "")
