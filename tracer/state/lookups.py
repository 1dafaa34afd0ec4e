"""`getattr` and its like as traced code calls them: what is looked up by a computed name is noted.

    getattr(self.block, f"scale{i}")      is read as `self.block.scale0` is, which code mentions

While code runs for the first time its globals lend it these in place of the builtins. Each tells
the runs of its thread before the builtin is called. For code that has a builtin by another way, the
objects at hand count as a whole (`Facts.dynamic`), or all do (`Everything`).
"""

from __future__ import annotations

import builtins
import sys
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gradof.tracer.state.code_facts import Facts
from gradof.tracer.state.kinds import module_of

if TYPE_CHECKING:
    from gradof.tracer.state.reads import Reads


class _Running(threading.local):
    """The runs of this thread that note what is read, the outermost first."""

    def __init__(self) -> None:
        self.reads: list[Reads] = []


RUNNING = _Running()


@lru_cache(maxsize=8192)
def facts_of_name(name: str, stores: bool) -> Facts:
    """The facts of code that mentions an attribute of this name, and nothing else."""
    one, none = frozenset({name}), frozenset[Any]()
    return Facts(
        reads=none if stores else one, stores=one if stores else none, only_grown=none,
        grown_keys=none, keyed=none, whole=none if stores else one, globals_read=none,
        globals_stored=none, cells_stored=none, probes=none if stores else one, imports=(),
        dynamic=False, asks_globals=False, builds=False, reduces=False, compared=none,
        opened=none if stores else one,
    )  # fmt: skip


def _runs_that_see(obj: Any) -> list[Reads]:
    """Our own bookkeeping is no state of the user's, by whatever name it is asked for."""
    return [] if module_of(type(obj)).startswith("gradof.") else RUNNING.reads


def _tell(obj: Any, name: Any, stores: bool = False) -> None:
    if isinstance(name, str):
        for reads in _runs_that_see(obj):
            facts = facts_of_name(str(name), stores)
            reads.stored |= facts.stores
            for names in reads.kinds_of_names():
                names |= facts.reads
            reads.held.see(obj, facts)


def _getattr(obj: Any, name: str, *default: Any) -> Any:
    _tell(obj, name)
    found = builtins.getattr(obj, name, *default)
    code = sys._getframe(1).f_code
    for reads in _runs_that_see(obj):  # the code that asked sees what it leads to
        if (facts := reads.facts_at(code)) is not None:
            reads.held.see(found, facts, given=True)
    return found


def _hasattr(obj: Any, name: str) -> bool:
    _tell(obj, name)
    return builtins.hasattr(obj, name)


def _setattr(obj: Any, name: str, value: Any) -> None:
    _tell(obj, name, stores=True)
    builtins.setattr(obj, name, value)


def _delattr(obj: Any, name: str) -> None:
    _tell(obj, name, stores=True)
    builtins.delattr(obj, name)


LENT = {"getattr": _getattr, "hasattr": _hasattr, "setattr": _setattr, "delattr": _delattr}
