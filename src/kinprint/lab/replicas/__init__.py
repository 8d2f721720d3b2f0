"""Write statistical replicas of the studied models: synthetic checkpoints with the published statistics."""

from kinprint.lab.replicas.shapes import NAMES, REPOS
from kinprint.lab.replicas.writer import PARTS, write_replicas

__all__ = ["NAMES", "PARTS", "REPOS", "write_replicas"]
