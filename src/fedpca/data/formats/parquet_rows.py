"""The rows of parquet files. Importing this module imports pyarrow, which takes its time."""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fedpca.data.formats.bounds import MAX_BYTES, OBJECT, require_bytes
from fedpca.data.formats.source import Picture, Source, given_labels, has_image_column, require_columns
from fedpca.errors import DataError
from fedpca.settings.experiment import DataSettings


def parquet_source(files: list[Path], settings: DataSettings) -> Source:
    """The rows of parquet files with a column of encoded images and one of labels."""
    schema = _open(files[0]).schema_arrow
    place, label = str(files[0] if len(files) == 1 else files[0].parent / "*.parquet"), settings.label_column
    image = "img" if settings.image_column not in schema.names and "img" in schema.names else settings.image_column
    require_columns(place, schema.names, image, label)
    kinds = dict(zip(schema.names, schema.types, strict=True))
    if not (pa.types.is_struct(kinds[image]) or _is_binary(kinds[image])):
        kind = kinds[image]
        raise DataError(f"{place}, column {image!r}: images must be bytes or {{bytes, path}}, but it holds {kind}")
    labels = given_labels(_values(files, label, settings.max_bytes), f"{place}, column {label!r}")
    columns = plain_columns(files, (image, label), settings.max_bytes)
    pictures = partial(_pictures, files, image, settings.max_bytes)
    return Source(place, f"column {label!r}", labels, pictures, columns, _hub_classes(schema, label))


def holds_images(path: Path, settings: DataSettings) -> bool:
    """Whether a parquet file has a column of images by name, or one that a table of numbers cannot have."""
    schema = _open(path).schema_arrow
    others = [kind for kind in schema.types if pa.types.is_nested(kind) or _is_binary(kind)]
    return bool(others) or "img" in schema.names or has_image_column(schema.names, settings)


def all_values(files: list[Path], max_bytes: int) -> dict[str, list[object]]:
    """Every column of a table of numbers."""
    names = _open(files[0]).schema_arrow.names
    return {name: _values(files, name, max_bytes // len(names)) for name in names}


def plain_columns(files: list[Path], without: tuple[str, ...] = (), max_bytes: int = MAX_BYTES) -> dict[str, list[str]]:
    """The columns that hold neither images nor lists, as texts."""
    schema = _open(files[0]).schema_arrow
    kinds = {name: kind for name, kind in zip(schema.names, schema.types, strict=True) if name not in without}
    plain = [name for name, kind in kinds.items() if not pa.types.is_nested(kind) and not _is_binary(kind)]
    return {name: ["" if value is None else str(value) for value in _values(files, name, max_bytes)] for name in plain}


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _open(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a readable parquet file ({error}): fetch it again") from None


def _values(files: list[Path], column: str, max_bytes: int) -> list[object]:
    values: list[object] = []
    for path in files:
        file = _open(path)
        require_bytes(f"{path}, column {column!r}", sum(_sizes(file, column)), max_bytes)
        try:
            values += file.read(columns=[column]).column(column).to_pylist()
        except (pa.ArrowException, OSError, KeyError) as error:
            raise DataError(f"{path}: column {column!r} cannot be read ({error})") from None
    return values


def _sizes(file: pq.ParquetFile, column: str) -> list[int]:
    """Bytes that a column's values take in memory, by row groups, by the file's own words."""
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    return [group.num_rows * OBJECT + _unpacked(group, column) for group in groups]


def _unpacked(group: pq.RowGroupMetaData, column: str) -> int:
    chunks = [group.column(number) for number in range(group.num_columns)]
    return sum(one.total_uncompressed_size for one in chunks if one.path_in_schema.split(".")[0] == column)


def _pictures(files: list[Path], column: str, max_bytes: int) -> Iterator[tuple[str, Picture]]:
    for path in files:
        file = _open(path)
        require_bytes(f"{path}, a row group of column {column!r}", max(_sizes(file, column), default=0), max_bytes)
        try:
            batches = file.iter_batches(batch_size=256, columns=[column])
            cells = chain.from_iterable(batch.column(0).to_pylist() for batch in batches)
            for row, cell in enumerate(cells):
                yield _picture_in_cell(path, row, cell)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path} is damaged ({error}): fetch it again") from None


def _picture_in_cell(
    path: Path, row: int, cell: bytes | Mapping[str, bytes | str | None] | None
) -> tuple[str, Picture]:
    """A cell's picture; the hub's struct may give a path beside the bytes, or in their place."""
    name = f"{path.name} row {row}"
    if not isinstance(cell, Mapping):
        return name, cell
    data, file = cell.get("bytes"), cell.get("path")
    if isinstance(file, str):
        return f"{name} ({file})", data if isinstance(data, bytes) else path.parent / file
    return name, data if isinstance(data, bytes) else None


def _hub_classes(schema: pa.Schema, label: str) -> tuple[str, ...]:
    """The class names that the hub writes into a parquet file's metadata; () without."""
    try:
        notes = json.loads((schema.metadata or {})[b"huggingface"])
        return tuple(str(name) for name in notes["info"]["features"][label]["names"])
    except (KeyError, TypeError, ValueError, RecursionError):
        return ()
