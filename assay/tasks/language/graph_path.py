"""graph-path: "ab,bd,cd,ac:a>d=" is completed by a shortest path such as "abd"; every shortest path counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from assay.core.errors import AssayError
from assay.core.record import Outcome, PolicyFault, Score
from assay.rollouts.text import CharacterTokenizer
from assay.tasks.language.arithmetic import WHITESPACE
from assay.tasks.language.items import Generator, Item
from assay.tasks.language.prompts import PromptTask

NODES = "abcdefghijklmnopqrstuvwxyz"
Edges = frozenset[tuple[int, int]]


@dataclass(frozen=True)
class GraphPath(Generator):
    """A connected graph of `level` nodes: a random tree and `extra` more edges, none directed.

    A correct answer is a shortest path along edges from the first node to the second; whitespace around it is ignored.
    The two are never neighbours. The same edges with the same two ends are in the same split, whatever the order in
    which they are written.
    """

    level: int = 6
    extra: int = 2

    def __post_init__(self) -> None:
        if not (3 <= self.level <= len(NODES) and self.extra >= 0):
            raise AssayError(f"{self}: level (nodes) must be 3 to {len(NODES)}, extra edges not negative")

    @property
    def num_words(self) -> int:
        return 2 * self.level - 1 + 2 * self.extra + 2 + self.most_edges

    @property
    def most_edges(self) -> int:
        """Returns the largest number of edges: an extra one may coincide with another."""
        return self.level - 1 + self.extra

    def propose(self, words: Sequence[int]) -> tuple[str, Item] | None:
        """Returns the graph of these words, or None if its ends are neighbours."""
        rest = iter(words)
        names = sorted(range(self.level), key=lambda node: next(rest))
        edges = {pair(names[k], names[next(rest) % k]) for k in range(1, self.level)}
        ends = [(next(rest) % self.level, next(rest) % self.level) for _ in range(self.extra)]
        edges |= {pair(one, other) for one, other in ends if one != other}
        begin, end = next(rest) % self.level, next(rest) % self.level
        graph = frozenset(edges)
        steps = distances(graph, end, self.level)
        if steps[begin] < 2:
            return None
        told = sorted(sorted(edges), key=lambda edge: next(rest))
        shown = ",".join(NODES[one] + NODES[other] for one, other in told)
        path = shortest(graph, begin, steps)
        content = f"{sorted(edges)} {sorted((begin, end))}"
        facts = {"edges": tuple(sorted(edges)), "begin": begin, "end": end, "steps": steps[begin]}
        return content, Item(f"{shown}:{NODES[begin]}>{NODES[end]}=", path, path, facts)

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns 1 for a shortest path, 0 for a longer one; anything but a path between the two nodes is a fault."""
        written = completion.strip(WHITESPACE)
        if not written:
            return PolicyFault("no answer")
        if len(written) > self.level or any(letter not in NODES[: self.level] for letter in written):
            return PolicyFault("not a sequence of nodes, each at most once")
        path = [NODES.index(letter) for letter in written]
        if (path[0], path[-1]) != (item.facts["begin"], item.facts["end"]):
            return PolicyFault("does not lead from the first to the second")
        edges = item.facts["edges"]
        assert isinstance(edges, tuple)
        if any(pair(one, other) not in edges for one, other in zip(path, path[1:], strict=False)):
            return PolicyFault("follows an edge that does not exist")
        return Score(float(len(path) - 1 == item.facts["steps"]))


def pair(one: int, other: int) -> tuple[int, int]:
    """Returns an edge, its smaller node first."""
    return (one, other) if one < other else (other, one)


def distances(edges: Edges, end: int, num: int) -> list[int]:
    """Steps from each node to `end`, breadth first; the graph is connected."""
    steps, ring, near = {end: 0}, [end], [{one, other} for one, other in edges]
    while ring:
        ring = sorted({node for here in ring for both in near if here in both for node in both} - set(steps))
        steps |= dict.fromkeys(ring, max(steps.values()) + 1)
    return [steps[node] for node in range(num)]


def shortest(edges: Edges, begin: int, steps: Sequence[int]) -> str:
    """Returns the first shortest path in the order of the alphabet."""
    path = [begin]
    while steps[path[-1]]:
        nearer = [node for node, left in enumerate(steps) if left == steps[path[-1]] - 1]
        path.append(next(node for node in nearer if pair(path[-1], node) in edges))
    return "".join(NODES[node] for node in path)


def graph_path(level: int = 6, extra: int = 2) -> PromptTask:
    """Returns the task; `level` is the number of nodes."""
    items = GraphPath(level, extra)
    name = f"graph-path-{level}" if extra == 2 else f"graph-path-{level}x{extra}"
    longest_prompt = 1 + 3 * items.most_edges + 4
    return PromptTask(name, items, CharacterTokenizer(), longest_prompt, max_tokens=level + 1)


LEVELS: Mapping[str, Callable[[], PromptTask]] = {
    "graph-path": graph_path,
    **{f"graph-path-{level}": partial(graph_path, level) for level in (4, 5, 6, 8, 10, 12, 16)},
}
