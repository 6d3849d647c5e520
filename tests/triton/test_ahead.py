"""`kvgen build --target`: kernels shipped beside a package are loaded without a compiler, or refused with a reason."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.triton import stub_driver

POLICY = "kvgen 1\npolicy Ring { heads query 4 kv 1 dim 64 window 512 padding left right }\n"
KERNELS = ["append_columns", "append_step", "decode", "merge", "window"]


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A folder with a policy, its package with kernels for the H100, and the stub."""
    folder = tmp_path_factory.mktemp("ahead")
    stub_driver.build(folder)
    (folder / "shipped.kv").write_text(POLICY)
    kvgen(folder, "compile", "shipped.kv")
    done = kvgen(folder, "build", "shipped.kv", "--target", "sm_90")
    assert done.returncode == 0 and "9 kernels" in done.stderr, done.stderr
    return folder


def kvgen(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = (sys.executable, "-m", "kvgen", *arguments)
    settings = {"cwd": folder, "env": stub_driver.environment(folder)}
    return subprocess.run(command, capture_output=True, text=True, check=False, **settings)


@pytest.fixture(scope="module")
def outcomes(home) -> dict[str, dict]:
    """What came of the package as it was built, and of copies in which something is wrong."""
    for name, spoil in SPOILT.items():
        shutil.copytree(home / "generated" / "shipped", home / "generated" / name)
        spoil(home / "generated" / name, home / "generated" / name / "_kernels" / "sm_90")
    program = (sys.executable, Path(__file__).with_name("ahead_side.py"), home, home / "generated")
    settings = {"env": stub_driver.environment(home), "capture_output": True, "text": True}
    done = subprocess.run((*program, "shipped", *SPOILT), check=False, **settings)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def damage(package: Path, kernels: Path) -> None:
    for code in kernels.glob("*.decode.*.cubin"):
        code.write_bytes(code.read_bytes()[:-100])


def cut(package: Path, kernels: Path) -> None:
    for record in kernels.glob("*.decode.*.json"):
        record.write_text(record.read_text()[:-40])


def remove(package: Path, kernels: Path) -> None:
    for file in kernels.glob("*.decode.*"):
        file.unlink()


def edit(package: Path, kernels: Path) -> None:
    module = package / "ring_triton.py"
    module.write_text(module.read_text() + "\n# mine\n")


def record(**changed: str):
    def change(package: Path, kernels: Path) -> None:
        for file in kernels.glob("*.json"):
            text = json.loads(file.read_text())
            text["kvgen"] |= changed
            file.write_text(json.dumps(text))

    return change


def rename(package: Path, kernels: Path) -> None:
    kernels.rename(kernels.with_name("sm_80"))


SPOILT = {
    "damaged": damage,
    "cut_off": cut,
    "incomplete": remove,
    "edited": edit,
    "foreign": record(target="sm_80"),
    "older": record(triton="3.4.0"),
    "elsewhere": rename,
}


def test_no_kernel_is_compiled_where_all_are_shipped(outcomes):
    found = outcomes["shipped"]
    assert found["compiled"] == [] and found["told"] == []
    assert (
        found["launches"] == 3 + 2 * 3 + 1
    )  # a chunk: window, and its write when the next append comes


@pytest.mark.parametrize(
    ("name", "compiled", "why"),
    [
        ("damaged", ["decode"], "is not the code that its record tells of"),
        ("cut_off", ["decode"], "cannot be read (JSONDecodeError"),
        ("incomplete", ["decode"], "has no decode for such columns"),
        ("edited", KERNELS, "another text of ring_triton.py"),
        ("foreign", KERNELS, "holds kernels for sm_80"),
        ("older", KERNELS, "built by triton 3.4.0"),
    ],
)
def test_a_kernel_that_does_not_fit_is_compiled_and_one_warning_says_why(
    outcomes, name, compiled, why
):
    found = outcomes[name]
    assert sorted(set(found["compiled"])) == compiled
    assert found["launches"] == outcomes["shipped"]["launches"]
    assert len(found["told"]) == 1 and why in found["told"][0], found["told"]
    assert "kvgen build --target" in found["told"][0]


def test_kernels_of_other_gpus_are_no_concern(outcomes):
    found = outcomes["elsewhere"]
    assert sorted(set(found["compiled"])) == KERNELS and found["told"] == []


def test_records_say_what_they_are_and_nothing_of_this_machine(home):
    for file in (home / "generated" / "shipped" / "_kernels" / "sm_90").glob("*.json"):
        text = file.read_text()
        assert {"target", "triton", "text", "code", "types", "constants"} == set(
            json.loads(text)["kvgen"]
        )
        assert str(Path(sys.prefix)) not in text and str(home) not in text
    for file in home.glob("generated/shipped/_kernels/sm_90/*.cubin"):
        assert str(home).encode() not in file.read_bytes()


def test_a_package_that_is_not_there_or_not_of_this_policy_is_refused(home, tmp_path):
    (tmp_path / "shipped.kv").write_text(POLICY.replace("512", "256"))
    missing = kvgen(tmp_path, "build", "shipped.kv", "--target", "sm_90")
    assert missing.returncode == 2 and "is not there" in missing.stderr
    shutil.copytree(home / "generated", tmp_path / "generated")
    other = kvgen(tmp_path, "build", "shipped.kv", "--target", "sm_90")
    assert other.returncode == 2 and "another shipped.kv" in other.stderr
    assert "kvgen compile shipped.kv" in other.stderr


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--target", "sm_90,sm_1"), "no target sm_1"),
        (("--target", "sm_90", "--columns", "4,17"), "--columns 17"),
        (("--columns", "4"), "add --target"),
    ],
)
def test_usage(home, options, why):
    done = kvgen(home, "build", "shipped.kv", *options)
    assert done.returncode == 2 and why in done.stderr, done.stderr


def test_doctor_tells_of_them(home, outcomes):
    told = re.sub(" +", " ", kvgen(home, "doctor", "-o", "generated").stdout)
    assert "ok generated shipped/_kernels/sm_90: 9 kernels\n" in told
    assert "!! generated edited/_kernels/sm_90: 9 kernels, 9 of other code" in told
