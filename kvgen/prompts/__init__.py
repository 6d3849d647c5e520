"""Prompts that are kept: caches in files, and a store that finds the longest beginning already computed.

A run-time helper for those who have kvgen installed; emitted packages need nothing of it. Files need `safetensors`.
"""

from kvgen.prompts.files import PromptFileError, load, read_metadata, save
from kvgen.prompts.store import Found, PromptStore

__all__ = ["Found", "PromptFileError", "PromptStore", "load", "read_metadata", "save"]
