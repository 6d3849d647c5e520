"""From a policy to its C++ kernels: the numbers the templates spell, and how decode is cut.

Nothing here compiles anything: an emitted package does, at first use or by `kvgen build`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvgen import model
from kvgen.backends import File
from kvgen.ir import CachePolicy, Contiguous, DType, Ring
from kvgen.naming import modules, names
from kvgen.plan import PackagePlan

ELEMENTS = {DType.F32: "float", DType.F16: "kv::Float16", DType.BF16: "kv::BFloat16"}
DECODE_QUERIES = (4, 8, 12)  # about so many are worth a decode kernel
HEADERS = (
    "",
    "_decode",
    "_job",
    "_numbers",
    "_panel",
    "_softmax",
    "_sums",
    "_threads",
    "_vector",
    "_window",
)
BUSY_HEADS = 8  # with as many kv heads a row keeps its threads busy without cutting short windows


@dataclass(frozen=True, slots=True)
class CpuPlan:
    """All that the templates say. None: the policy has no such limit, or no ring."""

    policy: str
    name: str
    module: str
    policy_module: str
    torch_name: str
    torch_module: str
    element: str
    query_heads: int
    kv_heads: int
    group: int
    key_dim: int
    value_dim: int
    window: int | None
    sinks: int
    chunk: int | None
    ring: int | None
    softcap: float | None
    sink_logits: bool
    keeps_planes: bool
    fewest_splits: int
    decode_queries: tuple[int, ...]

    @property
    def limited(self) -> bool:
        """Whether a query does not see all positions before it."""
        return self.window is not None or self.chunk is not None

    @property
    def ring_after_sinks(self) -> bool:
        return self.ring is not None and self.sinks > 0

    @property
    def chunked_sinks(self) -> bool:
        """Whether a query sees only the sinks of its own chunk."""
        return self.chunk is not None and self.sinks > 0

    @property
    def decode_sizes(self) -> str:
        """As arguments of the C++ `std::integer_sequence`."""
        return ", ".join(["int", *map(str, self.decode_queries)])


def plan(policy: CachePolicy) -> CpuPlan:
    heads, retention, scores, storage = (
        policy.heads,
        policy.retention,
        policy.scores,
        policy.storage,
    )
    ring = model.ring_slots(retention, storage) if isinstance(storage, Ring) else None
    name, module = names(policy.name), modules(policy.name)
    return CpuPlan(
        policy=policy.name,
        name=name["cpu"],
        module=module["cpu"],
        policy_module=module["policy"],
        torch_name=name["torch"],
        torch_module=module["torch"],
        element=ELEMENTS[policy.dtype],
        query_heads=heads.query,
        kv_heads=heads.kv,
        group=heads.group,
        key_dim=heads.key_dim,
        value_dim=heads.value_dim,
        window=retention.window_tokens,
        sinks=model.effective_sinks(retention),
        chunk=retention.chunk_tokens,
        ring=ring,
        softcap=scores.softcap,
        sink_logits=scores.sink_logits,
        keeps_planes=not isinstance(storage, Contiguous),
        fewest_splits=1 if heads.kv >= BUSY_HEADS else 4,
        decode_queries=decode_queries(heads.group),
    )


def decode_queries(group: int) -> tuple[int, ...]:
    """For how many queries of a kv head there is a decode kernel: those of one column, and of some more.

    Two kernels, or three of small groups, as each takes a quarter of a second to build. None for groups that alone fill the
    vectors of the window kernel.
    """
    if group > DECODE_QUERIES[-1]:
        return ()
    whole_columns = {group, *(most // group * group for most in DECODE_QUERIES)} - {0}
    return tuple(sorted(whole_columns)[: 3 if group < 4 else 2])


def files(package: PackagePlan) -> tuple[File, ...]:
    plans = [(one, {"plan": plan(one.policy)}) for one in package.policies]
    stored = [values for one, values in plans if one.stored]
    shared = [
        File("_build.py", "cpu/_build.py.jinja", {}),
        File("_cpu.py", "cpu/_cpu.py.jinja", {}),
        *(File(f"_cpu{part}.h", f"cpu/_cpu{part}.h.jinja", {}, "//") for part in HEADERS),
    ]
    return (
        *(shared if stored else ()),
        *(
            File(f"{values['plan'].module}.cpp", "cpu/kernels.cpp.jinja", values, "//")
            for values in stored
        ),
        *(
            File(f"{values['plan'].module}.py", _module_template(one.stored), values)
            for one, values in plans
        ),
    )


def _module_template(stored: bool) -> str:
    return "cpu/kernels.py.jinja" if stored else "cpu/stateless.py.jinja"
