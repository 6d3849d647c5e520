"""bench/gpu.py without a GPU: every group once, tiny, interpreted, untimed. So that it runs where one is at hand."""

import json

import pytest

import bench.gpu as module


@pytest.fixture
def bench(monkeypatch):
    for name, value in (("DEVICE", "cpu"), ("HEADS", 1), ("DIM", 16)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "milliseconds", lambda call, repeats=1: call() is None or 1.0)
    monkeypatch.setattr(module, "replayed", lambda call: call)
    monkeypatch.setattr(module, "optional", lambda name, make: {})
    return module


def test_decode_and_verify(bench):
    for window, columns in ((20, 1), (20, 4)):
        result = bench.run_stored("decode", 1, window, 1, 2, "f16", columns)
        assert set(result.milliseconds) == {"kvgen", "SDPA"}


def test_prefill(bench):
    result = bench.run_prefill("prefill", 20, 80)
    assert {"kvgen", "SDPA, masked"} <= set(result.milliseconds)


def test_training(bench):
    result = bench.run_training("training", 20, 40)
    assert set(result.milliseconds) == {"kvgen", "SDPA, masked"}


def test_every_case_is_made_and_every_group_has_its_share(bench):
    assert set(bench.SHARES) == set(bench.GROUPS) and sum(bench.SHARES.values()) == pytest.approx(1)
    for quick in (True, False):
        names = [name for group in bench.GROUPS.values() for name, _ in group(quick)]
        assert len(names) == len(set(names))
    full = " ".join(names)
    for what in (
        "window 128",
        "full 32k",
        "batch 64",
        "ratio 8",
        "f16",
        "columns 8",
        "length 32768",
    ):
        assert what in full


def test_a_report_is_written_and_a_failure_is_told(bench, tmp_path, monkeypatch):
    """The whole run, with cases that are right, too large, and wrong."""

    def cases(quick):
        yield "right", lambda: bench.run_prefill("right", 20, 80)
        yield "large", lambda: None
        yield "wrong", lambda: (_ for _ in ()).throw(bench.WrongError("by 1"))

    monkeypatch.setattr(bench, "GROUPS", {"prefill": cases})
    monkeypatch.setattr(bench, "copy_rate", lambda: 1e9)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "Fake (8x) GPU/1")
    monkeypatch.setattr(
        "sys.argv", ["gpu.py", "--only", "prefill", "--output", str(tmp_path / "x.json")]
    )
    with pytest.raises(SystemExit) as ended:
        bench.main()
    report = json.loads((tmp_path / "x.json").read_text())
    assert ended.value.code == 1 and report["failed"] == ["wrong: WrongError: by 1"]
    assert report["left_out"] == ["large: too large for this device"]
    (result,) = report["results"]
    assert result["ratios"] == {"SDPA, masked": 1.0} and result["copy_share"] > 0


def test_a_wrong_answer_is_not_timed(bench, monkeypatch):
    monkeypatch.setattr(bench, "judged", lambda q, *rest: q.double() + 9)
    with pytest.raises(bench.WrongError):
        bench.run_prefill("prefill", 20, 80)
    with pytest.raises(bench.WrongError):
        bench.run_stored("decode", 1, 20, 1, 2, "f16", 1)
