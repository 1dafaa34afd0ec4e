"""Which gradof was measured."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def commit() -> str:
    """gradof's commit, and whether the tree differs from it; or what GRADOF_COMMIT says.

    That is for copies of a tree without git, or with a git that is of another tree.
    """
    told = os.environ.get("GRADOF_COMMIT")
    if told:
        return told

    def git(*args: str) -> str:
        return subprocess.run(
            ["git", "-C", str(ROOT), *args], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changes = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + (" with changes" if changes else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown: no git checkout"
