"""Prompts that are kept: files that are refused when wrong, rings that resume, a store that saves prefills."""

from __future__ import annotations

import functools
import json
import threading

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("safetensors")

from kvgen.prompts import PromptFileError, PromptStore, load, read_metadata, save
from tests.hf.models import VOCABULARY, WINDOW, backend_or_skip, given, tiny
from tests.hf.models import load as load_package


def ids(columns, seed=0, rows=1):
    torch.manual_seed(seed)
    return torch.randint(3, VOCABULARY, (rows, columns))


def forward(case, cache, tokens, **options):
    case.model.set_attn_implementation("kvgen")
    with torch.no_grad():
        return case.model(tokens, **given(cache), **options).logits


@pytest.mark.parametrize("family", ["mistral", "gemma3n", "llama4", "llama"])
def test_a_rotated_cache_resumes_exactly(family, tmp_path):
    case = tiny(family)
    cache, other = case.cache(), case.cache()
    tokens = ids(6 * WINDOW, rows=2)
    mask = torch.ones_like(tokens)
    mask[1, :3] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    end = 4 * WINDOW
    forward(
        case, cache, tokens[:, :end], attention_mask=mask[:, :end], position_ids=positions[:, :end]
    )
    save(cache, tmp_path / "prompt.safetensors", {"model": "tiny", "tokens": [1, 2, 3]})
    metadata = load(other, tmp_path / "prompt.safetensors")
    assert metadata == read_metadata(tmp_path / "prompt.safetensors")
    assert metadata == {"model": "tiny", "tokens": [1, 2, 3]}
    assert other.offsets == cache.offsets == (end, end - 3)
    assert other.get_seq_length() == end
    rest = {"attention_mask": mask, "position_ids": positions[:, end:]}
    want = forward(case, cache, tokens[:, end:], **rest)
    assert torch.equal(forward(case, other, tokens[:, end:], **rest), want)
    assert [path.name for path in tmp_path.iterdir()] == ["prompt.safetensors"]


def test_caches_without_transformers_are_saved_too(tmp_path):
    caches = tiny("mistral").cache()
    forward(tiny("mistral"), caches, ids(9))
    inner, empty = caches.caches, type(caches.caches)(1, dtype=torch.float32, backend="torch")
    save(inner.layers[0], tmp_path / "layer")
    save(inner, tmp_path / "model")
    load(empty, tmp_path / "model")
    assert empty.offsets == (9,)
    load(empty.layers[1], tmp_path / "layer")
    for name, value in inner.layers[0].state_dict().items():
        found = empty.layers[1].state_dict()[name]
        assert torch.equal(found, value) if isinstance(value, torch.Tensor) else found == value


def test_damaged_and_foreign_files_are_refused(tmp_path):
    case = tiny("mistral")
    cache, file = case.cache(), tmp_path / "prompt"
    forward(case, cache, ids(20))
    save(cache, file, {"tokens": list(range(20))})
    whole = file.read_bytes()
    for cut in (0, 7, 100, len(whole) // 2, len(whole) - 1):
        refuse(case, file, whole[:cut])
    for at in range(8, len(whole), max(1, len(whole) // 60)):
        refuse(case, file, whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
    newer = whole.replace(b'{\\"format\\": 1', b'{\\"format\\": 7')
    assert newer != whole
    refuse(case, file, newer, match="format 7")
    file.write_bytes(whole)
    for family in ("llama", "gemma3"):
        other = tiny(family).cache()
        with pytest.raises(PromptFileError, match="another cache"):
            load(other, file)
        assert other.get_seq_length() == 0
    with pytest.raises(FileNotFoundError):
        load(case.cache(), tmp_path / "none")


def refuse(case, file, data, match=None):
    file.write_bytes(data)
    cache = case.cache()
    forward(case, cache, ids(3))
    with pytest.raises(PromptFileError, match=match):
        load(cache, file)
    assert cache.offsets == (3,)


@pytest.mark.parametrize("changed", ["softcap 4", "scale 0.5"])
def test_keys_of_other_scores_are_refused(changed, tmp_path):
    """They have the same shapes, but a later layer's depend on how the earlier ones attended."""
    case, file = tiny("mistral"), tmp_path / "prompt"
    hf = load_package(
        case.policy.replace("    storage", f"    {changed}\n    storage"), "tiny_other"
    ).hf
    save(filled(case, ids(9)[0].tolist()), file)
    other = hf.TinyHFCache(backend="torch")
    with pytest.raises(PromptFileError, match=changed):
        load(other, file)
    assert other.caches is None
    layer = filled(case, [3, 4]).caches.layers[0]
    save(layer, file)
    with pytest.raises(PromptFileError, match="another cache"):
        load(filled(case, [3, 4]).caches, file)


def test_a_file_of_something_else(tmp_path):
    from safetensors.torch import save_file

    save_file({"x": torch.ones(2)}, tmp_path / "other")
    with pytest.raises(PromptFileError, match="no prompt of kvgen"):
        load(tiny("llama").cache(), tmp_path / "other")
    save_file({"x": torch.ones(2)}, tmp_path / "other", {"kvgen": json.dumps({"format": 1})})
    with pytest.raises(PromptFileError, match="damaged"):
        load(tiny("llama").cache(), tmp_path / "other")


# -- The store


def store_of(case, memory_bytes=1 << 30, folder=None):
    return PromptStore(case.cache, memory_bytes, folder)


def filled(case, tokens):
    cache = case.cache()
    forward(case, cache, torch.tensor([tokens]))
    return cache


@pytest.mark.parametrize("family", ["mistral", "gemma3", "llama"])
def test_a_chat_of_twenty_turns(family, tmp_path):
    """The same answers as without the store, most of each prompt not computed again; from files too."""
    case = tiny(family)
    store, said = store_of(case, 2 * filled(case, [3]).nbytes, tmp_path), []
    case.model.set_attn_implementation("kvgen")
    asked = 0
    for turn in range(20):
        said = said + ids(5, seed=turn)[0].tolist()
        prompt = torch.tensor([said])
        options = {
            "attention_mask": torch.ones_like(prompt),
            "max_new_tokens": 4,
            "do_sample": False,
        }
        options |= {"eos_token_id": -1, "output_logits": True, "return_dict_in_generate": True}
        plain = case.model.generate(prompt, **given(case.cache()), **options)
        found = store.find(said)
        cache = found.cache() if found else case.cache()
        answer = case.model.generate(prompt, **given(cache), **options)
        assert torch.equal(answer.sequences, plain.sequences)
        for got, want in zip(answer.logits, plain.logits, strict=True):
            torch.testing.assert_close(got, want, rtol=0, atol=1e-4)
        asked += len(said)
        said = answer.sequences[0].tolist()
        store.add(said[: cache.get_seq_length()], cache)
    assert store.saved_tokens > 0.85 * asked
    assert store.nbytes <= store.memory_bytes


def test_the_longest_usable_beginning():
    case = tiny("llama")
    store = store_of(case)
    first, second = list(range(3, 13)), [*range(3, 9), 50, 51, 52]
    store.add(first, filled(case, first))
    store.add(second, filled(case, second))
    for tokens, usable in [
        ([*first, 60], 10),
        (first, 9),
        (second, 8),
        ([*range(3, 9), 70], 6),
        ([3], 0),
        ([], 0),
        ([80, 81], 0),
    ]:
        found = store.find(tokens)
        assert (0 if found is None else found.tokens) == usable
        if found is not None:
            cache = found.cache()
            assert cache.offsets == (usable,)
            alone = case.cache()
            tail = torch.tensor([tokens[usable:]])
            want = forward(case, alone, torch.tensor([tokens]))[:, usable:]
            torch.testing.assert_close(forward(case, cache, tail), want, rtol=0, atol=1e-4)


def test_a_ring_serves_only_what_it_can_take_back_exactly():
    case = tiny("mistral")
    store, tokens = store_of(case), ids(8 * WINDOW)[0].tolist()
    cache = case.cache()
    forward(case, cache, torch.tensor([tokens[:-20]]))
    for token in tokens[-20:]:
        forward(case, cache, torch.tensor([[token]]))
    store.add(tokens, cache)
    slack = 8
    assert store.find([*tokens[:-3], 80]).tokens == len(tokens) - 3
    assert store.find([*tokens[:-slack], 80]).tokens == len(tokens) - slack
    assert store.find([*tokens[: -slack - 1], 80]) is None
    early = tokens[:10]
    store.add(early, filled(case, early))
    assert store.find([*tokens[: -slack - 1], 80]).tokens == 10


def test_over_budget_the_least_recently_used_goes(tmp_path):
    case = tiny("mistral")
    prompts = [ids(9, seed=seed)[0].tolist() for seed in range(3)]
    size = filled(case, prompts[0]).nbytes
    for folder in (None, tmp_path):
        store = store_of(case, 2 * size, folder)
        for tokens in prompts[:2]:
            store.add(tokens, filled(case, tokens))
        assert store.find([*prompts[0], 4]).tokens == 9
        store.add(prompts[2], filled(case, prompts[2]))
        assert store.nbytes == 2 * size
        found = store.find([*prompts[1], 4])
        assert (found is None) == (folder is None)
        if found is not None:
            cache = found.cache()
            want = forward(case, filled(case, prompts[1]), ids(2))
            torch.testing.assert_close(forward(case, cache, ids(2)), want)
        assert store.nbytes <= 2 * size
    assert len(list(tmp_path.iterdir())) >= 1


def planes(cache):
    """The addresses of all stored keys and values."""
    storages = [layer._storage for layer in cache.caches.layers]
    return {plane.data_ptr() for s in storages for plane in (s.keys, s.values)}


STORAGES = {
    "ring": ("mistral", "storage  ring", "storage  ring"),
    "contiguous": ("llama", "storage  contiguous", "storage  contiguous"),
    "fixed": ("llama", "storage  contiguous", "storage  fixed 64"),
}


@pytest.mark.parametrize("from_file", [False, True], ids=["in memory", "from a file"])
@pytest.mark.parametrize("backend", ["torch", "cpu"])
@pytest.mark.parametrize("storage", STORAGES)
def test_takers_share_until_they_write(storage, backend, from_file, tmp_path):
    family, written, wanted = STORAGES[storage]
    case = tiny(family)
    hf = load_package(case.policy.replace(written, wanted), f"tiny_{storage}").hf
    backend = backend_or_skip(backend)

    def make():
        return hf.TinyHFCache(case.model.config, backend=backend)

    tokens = ids(3 * WINDOW)[0].tolist()
    cache = make()
    forward(case, cache, torch.tensor([tokens[:-1]]))
    forward(case, cache, torch.tensor([tokens[-1:]]))
    size = cache.nbytes
    store = PromptStore(make, 0 if from_file else 1 << 30, tmp_path if from_file else None)
    store.add(tokens, cache)
    rest = torch.tensor([tokens[-1:]])
    want = forward(case, cache.clone(), rest)
    found = store.find([*tokens, 5])
    takers = [found.cache() for _ in range(4)]
    if not from_file:
        assert all(planes(taker) == planes(takers[0]) for taker in takers)
        assert store.nbytes == size
    writes = [
        lambda taker: forward(case, taker, rest),
        lambda taker: taker.trim(2),
        lambda taker: taker.reset(),
        lambda taker: taker.batch_repeat_interleave(2),
    ]
    for taker, write in zip(takers, writes, strict=True):
        write(taker)
        fresh = found.cache()
        assert not planes(taker) & planes(fresh)
        torch.testing.assert_close(forward(case, fresh, rest), want, rtol=0, atol=1e-5)
    assert store.nbytes == (0 if from_file else size)


def test_takers_in_threads_write_at_once():
    case = tiny("mistral")
    tokens = ids(3 * WINDOW)[0].tolist()
    store, failures = store_of(case), []
    store.add(tokens, filled(case, tokens))
    want = forward(case, filled(case, tokens), ids(5, seed=9))

    def work():
        try:
            for _ in range(5):
                cache = store.find([*tokens, 5]).cache()
                got = forward(case, cache, ids_of_rest)
                torch.testing.assert_close(got, want, rtol=0, atol=1e-5)
        except BaseException as error:  # noqa: BLE001 - reported by the test's own thread
            failures.append(error)

    ids_of_rest = ids(5, seed=9)
    run_in_threads([work] * 4)
    assert not failures


def test_tokens_must_be_those_of_the_cache():
    case = tiny("mistral")
    with pytest.raises(ValueError, match="2 tokens were given"):
        store_of(case).add([1, 2], filled(case, ids(9)[0].tolist()))


def test_what_a_store_is_given_wrongly(tmp_path):
    case, file = tiny("mistral"), tmp_path / "file"
    file.write_text("")
    for make, memory, said in [
        (case.cache(), 1, "make must"),
        (case.cache, "1GB", "memory_bytes"),
        (case.cache, 1.5, "memory_bytes"),
        (case.cache, -1, "memory_bytes"),
    ]:
        with pytest.raises(ValueError, match=said):
            PromptStore(make, memory)
    with pytest.raises(FileExistsError):
        PromptStore(case.cache, 0, file)
    store = store_of(case)
    for tokens in ([1.5], "ab", [2**70], torch.ones(2, 2)):
        with pytest.raises(ValueError, match="whole numbers"):
            store.find(tokens)
    with pytest.raises(ValueError, match="holds"):
        store.add(ids(9)[0].tolist(), filled_rows(case, 2))
    assert len(store) == 0


def filled_rows(case, rows):
    cache = case.cache()
    forward(case, cache, ids(9, rows=rows))
    return cache


@pytest.mark.parametrize("spoil", [lambda file: file.unlink(), lambda file: file.write_bytes(b"")])
def test_a_store_goes_on_when_a_file_is_gone(spoil, tmp_path):
    case = tiny("mistral")
    tokens = ids(9)[0].tolist()
    store = store_of(case, 0, tmp_path)
    for question in ([*tokens, 5], [*tokens[:-1], 5]):
        store.add(tokens, filled(case, tokens))
        store.add(tokens[:4], filled(case, tokens[:4]))
        next(spoil(f) for f in tmp_path.iterdir() if read_metadata(f)["tokens"] == tokens)
        if question[: len(tokens)] == tokens:
            found = store.find(question)
            with pytest.raises((OSError, PromptFileError)):
                found.cache()
        else:
            with pytest.warns(RuntimeWarning, match="left the store"):
                assert store.find(question).tokens == 4
        assert store.find(question).cache().offsets == (4,)


def test_loaded_where_the_model_is(tmp_path):
    """An HFCache has no device before its first keys: it is told, or the store remembers."""
    case, tokens = tiny("mistral"), ids(9)[0].tolist()
    save(filled(case, tokens), tmp_path / "prompt")
    cache = case.cache()
    load(cache, tmp_path / "prompt", "meta")
    assert cache.device.type == "meta"
    assert case.cache().device is None
    where = []

    def make():
        cache = case.cache()
        load_state = cache.load_state_dict
        cache.load_state_dict = lambda state, device: load_state(state, where.append(device))
        return cache

    store = PromptStore(make, 0, tmp_path / "store")
    store.add(tokens, filled(case, tokens))
    assert store.find([*tokens, 5]).cache().offsets == (9,)
    assert where == [torch.device("cpu")]


def test_metadata_is_json(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        save(filled(tiny("mistral"), [3, 4]), tmp_path / "prompt", {"ids": torch.ones(2)})
    assert not list(tmp_path.iterdir())
    with pytest.raises(PromptFileError, match="folder"):
        load(tiny("mistral").cache(), tmp_path)


def run_in_threads(calls):
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_several_threads(tmp_path):
    case = tiny("mistral")
    prompts = [ids(9, seed=seed)[0].tolist() for seed in range(4)]
    caches = [filled(case, tokens) for tokens in prompts]
    store, failures = store_of(case, 2 * caches[0].nbytes, tmp_path), []

    def work(number):
        try:
            for turn in range(12):
                which = (number + turn) % 4
                store.add(prompts[which], caches[which])
                if (found := store.find([*prompts[which], 5])) is not None:
                    cache = found.cache()
                    assert cache.offsets == (9,)
                    cache.trim(1)
        except BaseException as error:  # noqa: BLE001 - reported by the test's own thread
            failures.append(error)

    run_in_threads([functools.partial(work, number) for number in range(4)])
    assert not failures
    assert all(cache.offsets == (9,) for cache in caches)
