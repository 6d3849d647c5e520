# Written by kvgen from gpt_oss.kv and yours to keep: kvgen claims no right to it. Edit gpt_oss.kv.
# kvgen: gpt_oss.kv source 9acd408a8dc0 body a05785c881af codegen 1
"""Kernels that `kvgen build --target` compiled ahead of time, loaded without a compiler.

They lie beside these files, a record and machine code each, in a folder for each kind of GPU:

    _kernels/sm_90/local_triton.decode.0123456789ab.json
    _kernels/sm_90/local_triton.decode.0123456789ab.cubin

One is taken when GPU, triton and the text of its module are those that it was built with. Where one is refused, or missing
from a folder that is there, the JIT compiles the kernel as it does without the folder, and one warning says why.
"""

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import torch
from triton import __version__ as TRITON
from triton.compiler import ASTSource, CompiledKernel
from triton.runtime import driver

KERNELS = Path(__file__).with_name("_kernels")
CODE = {"cuda": "cubin", "hip": "hsaco"}
TYPES = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int32: "*i32",
}
_told: set[str] = set()


class Unfit(Exception):
    """Why a kernel that was compiled ahead is not taken."""


def name_of(function: Any, types: list[str], constants: dict[str, Any]) -> str:
    """What the files of a kernel are called. Constants and types are in it, so that each has files of its own."""
    meaning = json.dumps([types, sorted((name, repr(value)) for name, value in constants.items())])
    module = function.__module__.rpartition(".")[2]
    return f"{module}.{function.__name__}.{hashlib.sha256(meaning.encode()).hexdigest()[:12]}"


def text_hash(function: Any) -> str:
    """Of the module that a kernel stands in, below the two lines of its header, which holds the same hash."""
    text = Path(function.fn.__code__.co_filename).read_text(encoding="utf-8")
    return hashlib.sha256(text.split("\n", 2)[-1].encode()).hexdigest()[:12]


def find(function: Any, constants: dict[str, Any], arguments: tuple[Any, ...]) -> Any:
    """The kernel for these arguments, loaded on the current device; None where the JIT has to compile it."""
    if not KERNELS.is_dir():
        return None
    target = driver.active.get_current_target()
    folder = KERNELS / (f"sm_{target.arch}" if target.backend == "cuda" else target.arch)
    if not folder.is_dir():
        return None
    types = [TYPES.get(x.dtype, "?") if isinstance(x, torch.Tensor) else "i32" for x in arguments]
    try:
        return _load(folder, CODE[target.backend], function, types, constants)
    except Unfit as why:
        _tell(str(why))
    return None


def _load(folder: Path, suffix: str, function: Any, types: list[str], constants: Any) -> Any:
    name = name_of(function, types, constants)
    record, code = folder / f"{name}.json", folder / f"{name}.{suffix}"
    if not record.is_file():
        raise Unfit(f"{folder} has no {function.__name__} for such columns, layouts and dtypes")
    try:
        built = json.loads(record.read_text(encoding="utf-8"))["kvgen"]
        _compare(folder, built, function)
        if hashlib.sha256(code.read_bytes()).hexdigest() != built["code"]:
            raise Unfit(f"{code} is not the code that its record tells of")
        signature = types + ["constexpr"] * (len(function.arg_names) - len(types))
        source = ASTSource(
            fn=function,
            signature=dict(zip(function.arg_names, signature, strict=True)),
            constexprs={name: value for name, value in constants.items() if name.isupper()},
        )
        files = {path.name: str(path) for path in (record, code)}
        compiled = CompiledKernel(source, files, built["code"])
        compiled.run  # noqa: B018 - loads it
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unfit(f"{record} cannot be read ({type(error).__name__}: {error})") from error
    except RuntimeError as error:  # of the driver
        raise Unfit(f"{code} does not load: {error}") from error
    return compiled


def _compare(folder: Path, built: dict[str, str], function: Any) -> None:
    """What a kernel was built with against what is here."""
    if built["target"] != folder.name:
        raise Unfit(f"{folder} holds kernels for {built['target']}")
    if built["triton"] != TRITON:
        raise Unfit(f"{folder} was built by triton {built['triton']}, and this is triton {TRITON}")
    if built["text"] != text_hash(function):
        module = function.__module__.rpartition(".")[2]
        raise Unfit(f"{folder} was built for another text of {module}.py")


def _tell(why: str) -> None:
    if why not in _told:
        _told.add(why)
        advice = "kernels are compiled here instead; build them again with `kvgen build --target`"
        warnings.warn(f"{why}: {advice}, or remove the folder", RuntimeWarning, stacklevel=2)
