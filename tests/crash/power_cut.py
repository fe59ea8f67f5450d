"""Replay a recorded save on a model disk that forgets what was not fsynced; look at every state a cut can leave.

The model is harsher than a journaling file system. A file keeps what it held at its last fsync, or all. A folder keeps
its entries of the last fsync and any prefix of the changes since, in order, each folder on its own; so a name may
arrive before its content, and a deletion before the rename that should have come first.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.crash.mutations import Mutation


@dataclass(eq=False)
class File:
    """Bytes as written and as they were at the last fsync."""

    written: bytes = b""
    durable: bytes = b""

    def sync(self) -> None:
        self.durable = self.written


@dataclass(eq=False)
class Folder:
    """Entries as they are, as they were at the last fsync, and after each change since."""

    entries: dict[str, "File | Folder"] = field(default_factory=dict)
    states: list[dict[str, "File | Folder"]] = field(default_factory=lambda: [{}])

    def change(self, update: Callable[[dict[str, "File | Folder"]], Any]) -> None:
        update(self.entries)
        self.states.append(dict(self.entries))

    def sync(self) -> None:
        self.states = [dict(self.entries)]


def modelled(path: Path) -> File | Folder:
    """What is on the disk now, all of it durable."""
    if path.is_file():
        content = path.read_bytes()
        return File(content, content)
    entries = {child.name: modelled(child) for child in path.iterdir()}
    return Folder(entries, [dict(entries)])


class Disk:
    """The model of everything below one folder, to which recorded changes are applied."""

    def __init__(self, root: Path, start: File | Folder) -> None:
        self.root, self.top = root, start

    def node(self, path: str) -> Any:
        place: Any = self.top
        for part in Path(path).relative_to(self.root).parts:
            place = place.entries[part]
        return place

    def apply(self, mutation: Mutation) -> None:
        if mutation.name == "write":
            self.node(mutation.path).written += mutation.content
        elif mutation.name == "fsync":
            self.node(mutation.path).sync()
        else:
            name, folder = Path(mutation.path).name, self.node(os.path.dirname(mutation.path))
            target = Path(mutation.target).name
            folder.change(
                {
                    "open": lambda entries: entries.update({name: File()}),
                    "mkdir": lambda entries: entries.update({name: Folder()}),
                    "rename": lambda entries: entries.update({target: entries.pop(name)}),
                    "unlink": lambda entries: entries.pop(name),
                    "rmdir": lambda entries: entries.pop(name),
                }[mutation.name]
            )

    def images(self, focus: str) -> Iterator[dict[str, bytes | None]]:
        """Every tree that a cut may leave: path to content, None for a folder.

        Of the folder in focus every prefix of its changes is tried, of the others none of their changes or all.
        """
        try:
            focused = self.node(focus)
        except KeyError:
            focused = self.top
        for keeps_bytes in (False, True):
            for keeps_entries in (False, True):
                for prefix in range(len(focused.states)):
                    yield dict(self._image(self.top, "", focused, prefix, (keeps_bytes, keeps_entries)))

    def _image(
        self, node: File | Folder, path: str, focused: Folder, prefix: int, keeps: tuple[bool, bool]
    ) -> Iterator[tuple[str, bytes | None]]:
        if isinstance(node, File):
            yield path, node.written if keeps[0] else node.durable
            return
        yield path, None
        for name, child in node.states[prefix if node is focused else -1 if keeps[1] else 0].items():
            yield from self._image(child, f"{path}/{name}", focused, prefix, keeps)


def after_cuts(disk: Disk, trace: Sequence[Mutation], focus: str) -> Iterator[tuple[int, dict[str, bytes | None]]]:
    """Each different disk that a cut may leave, with the number of changes made before the cut."""
    for count in range(len(trace) + 1):
        seen = set()
        for image in disk.images(focus):
            key = frozenset(image.items())
            if key not in seen:
                seen.add(key)
                yield count, image
        if count < len(trace):
            disk.apply(trace[count])


def put_down(image: dict[str, bytes | None], root: Path) -> None:
    """Write an image as real files below the root."""
    for path, content in image.items():
        place = root / path.lstrip("/")
        if content is None:
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.write_bytes(content)
