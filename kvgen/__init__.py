"""kvgen compiles attention-cache policies (`.kv`) to readable PyTorch packages."""

__version__ = "0.1.0"
