"""Ready-made effects on files: `ctx.effect(copy_file, source, target)`, `ctx.effect(move_file, source, target)`."""

from .copying import CopiedFile, copy_file
from .moving import MovedFile, move_file
from .standing import TargetExistsError

__all__ = ["CopiedFile", "MovedFile", "TargetExistsError", "copy_file", "move_file"]
