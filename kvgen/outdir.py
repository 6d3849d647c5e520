"""The output folder: compare it with what was compiled, say what differs and why, write only what changed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from kvgen import __version__, header, manifest, textfile
from kvgen.errors import FileProblem
from kvgen.manifest import Entry, Manifest

BESIDE = {"__pycache__", "_kernels"}  # in a package's folder, made from its files


class Why(Enum):
    """Why a file on disk differs from what the policy compiles to now."""

    NEW = "not written yet"
    POLICY = "policy changed"
    EDITED = "file edited by hand"
    DELETED = "file deleted by hand"
    BACKENDS = "written for other backends"
    TUNED = "tuned table changed"
    TEMPLATES = "templates changed"


@dataclass(frozen=True, slots=True)
class Package:
    """What one .kv file compiles to. `files` by name inside the package's folder. `tuned`: a hash of what was measured of
    it and used, "" if nothing was.
    """

    name: str
    source_name: str
    formatted: str
    backends: tuple[str, ...]
    files: Mapping[str, str] = field(hash=False)
    tuned: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """One file that is to be written: its path in the output folder, its text on disk ("" if none) and the new one."""

    path: str
    why: Why
    before: str
    after: str

    @property
    def package(self) -> str | None:
        """None: the manifest's."""
        return self.path.partition("/")[0] if "/" in self.path else None


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file that kvgen wrote and nothing compiles to any more. One `edited` by hand is never removed."""

    package: str
    file: str
    source_name: str
    edited: bool

    @property
    def path(self) -> str:
        return f"{self.package}/{self.file}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """How an output folder differs from what was compiled. `whole`: `packages` are all that belong in it."""

    folder: Path
    packages: tuple[Package, ...]
    whole: bool
    changes: tuple[Change, ...]
    orphans: tuple[Orphan, ...]
    recorded: Manifest = field(hash=False)

    @property
    def clean(self) -> bool:
        return not self.changes and not self.orphans

    def changes_of(self, package: Package) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.package == package.name)


# -- Comparing


def compare(folder: Path, packages: tuple[Package, ...], whole: bool) -> Comparison:
    """Raises FileProblem where the folder is not ours to write."""
    recorded = _read_manifest(folder)
    changes = tuple(c for package in packages for c in _changes(folder, package, recorded))
    orphans = tuple(_orphans(folder, packages, whole, recorded))
    found = Comparison(folder, packages, whole, changes, orphans, recorded)
    return replace(found, changes=changes + _manifest_change(found))


def diff(found: Comparison) -> str:
    """The changes as one unified diff."""
    texts = (textfile.unified(c.path, c.before, c.after) for c in found.changes)
    return "".join(texts)


def _changes(folder: Path, package: Package, recorded: Manifest) -> Iterator[Change]:
    home = folder / package.name
    present = _names(home)
    _refuse_foreign(home, present)
    for name, after in sorted(package.files.items()):
        before = textfile.read(home / name) if name in present else None
        if before != after:
            why = _why(name, before, package, recorded.get(package.name))
            yield Change(f"{package.name}/{name}", why, before or "", after)


def _why(name: str, before: str | None, package: Package, entry: Entry | None) -> Why:
    if before is not None and not header.intact(before):
        return Why.EDITED
    if before is None and entry is None:
        return Why.NEW
    written = header.read(before) if before is not None else entry
    if written is not None and written.source != header.digest(package.formatted):
        return Why.POLICY
    if before is None and entry is not None and name in entry.files:
        return Why.DELETED
    if entry is not None and entry.backends != package.backends:
        return Why.BACKENDS
    if entry is not None and entry.tuned != package.tuned:
        return Why.TUNED
    return Why.TEMPLATES


def _names(home: Path) -> set[str]:
    """What a package's folder holds; nothing where it is not there yet."""
    try:
        return set(os.listdir(home)) - BESIDE
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise FileProblem.of(error, "choose another folder with -o") from error


def _refuse_foreign(home: Path, names: set[str]) -> None:
    """A folder of the package's name that kvgen did not write stays as it is."""
    if names and not any(header.read(textfile.read(home / name) or "") for name in names):
        raise FileProblem(
            f"{home} was not written by kvgen (it holds {min(names)});"
            " rename the .kv file, or choose another folder with -o"
        )


def _orphans(
    folder: Path, packages: tuple[Package, ...], whole: bool, recorded: Manifest
) -> Iterator[Orphan]:
    compiled = {package.name: package.files.keys() for package in packages}
    for name, entry in sorted(recorded.items()):
        if name not in compiled and not whole:
            continue
        for file in sorted(entry.files.keys() - compiled.get(name, ())):
            text = textfile.read(folder / name / file) or ""
            if header.read(text) is not None:
                yield Orphan(name, file, entry.source_name, not header.intact(text))


# -- The manifest


def _read_manifest(folder: Path) -> Manifest:
    path = folder / manifest.NAME
    text = textfile.read(path)
    return {} if text is None else manifest.load(text, path)


def _manifest_change(found: Comparison) -> tuple[Change, ...]:
    before = textfile.read(found.folder / manifest.NAME)
    after = _manifest_text(found, pruned=False)
    if before == after:
        return ()
    why = found.changes[0].why if found.changes else Why.EDITED
    return (Change(manifest.NAME, Why.NEW if before is None else why, before or "", after),)


def _manifest_text(found: Comparison, pruned: bool) -> str:
    """What the manifest says once the changes are written and, if `pruned`, the orphans are gone."""
    entries = {} if found.whole else dict(found.recorded)
    for package in found.packages:
        entries[package.name] = _entry(found, package)
    for orphan in found.orphans:
        if orphan.edited or not pruned:
            recorded = found.recorded[orphan.package]
            entry = entries.get(orphan.package, replace(recorded, files={}))
            kept = {orphan.file: recorded.files[orphan.file]}
            entries[orphan.package] = replace(entry, files={**entry.files, **kept})
    return manifest.dump(entries)


def _entry(found: Comparison, package: Package) -> Entry:
    recorded = found.recorded.get(package.name)
    unchanged = recorded is not None and not found.changes_of(package)
    return Entry(
        source_name=package.source_name,
        source=header.digest(package.formatted),
        codegen=header.CODEGEN,
        kvgen=recorded.kvgen if recorded is not None and unchanged else __version__,
        backends=package.backends,
        files={name: _body_hash(text) for name, text in package.files.items()},
        tuned=package.tuned,
    )


def _body_hash(text: str) -> str:
    found = header.read(text)
    return header.digest(text) if found is None else found.body


# -- Writing


def write(found: Comparison) -> None:
    """Write what changed; each file appears whole or not at all."""
    for change in found.changes:
        textfile.write(f"{found.folder}/{change.path}", change.after)


def prune(found: Comparison) -> None:
    """Remove the orphans that are as kvgen wrote them, and the folders this leaves empty."""
    gone = [orphan for orphan in found.orphans if not orphan.edited]
    try:
        for orphan in gone:
            (found.folder / orphan.path).unlink()
        for package in {orphan.package for orphan in gone}:
            _remove_if_empty(found.folder / package)
    except OSError as error:
        raise FileProblem.of(error, "make it writable, or remove it yourself") from error
    if gone:
        textfile.write(found.folder / manifest.NAME, _manifest_text(found, pruned=True))


def _remove_if_empty(folder: Path) -> None:
    import shutil

    if {path.name for path in folder.iterdir()} <= BESIDE:
        shutil.rmtree(folder)
