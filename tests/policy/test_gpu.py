"""Which device files a rule for accelerators means on a host; the folders of devices are made by the tests."""

from pathlib import Path

import pytest

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.policy.gpu import GpuRule, find_gpu, gpu_rule, outside_system, parse_gpu


def dev(folder: Path, *names: str) -> str:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return str(folder)


NVIDIA = ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps/nvidia-cap1", "null")


def test_no_rule_shows_nothing(tmp_path: Path) -> None:
    assert find_gpu(None, dev(tmp_path, *NVIDIA)).devices == ()


def test_all_cards_of_nvidia_with_what_their_programs_open(tmp_path: Path) -> None:
    found = find_gpu(GpuRule(), dev(tmp_path, *NVIDIA)).devices
    names = ["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"]
    assert found == tuple(f"{tmp_path}/{name}" for name in names)


def test_a_card_that_was_not_asked_for_stays_outside(tmp_path: Path) -> None:
    found = find_gpu(GpuRule((1,)), dev(tmp_path, *NVIDIA)).devices
    assert f"{tmp_path}/nvidia1" in found
    assert f"{tmp_path}/nvidia0" not in found


def test_cards_of_amd_by_their_order(tmp_path: Path) -> None:
    place = dev(tmp_path, "kfd", "dri/renderD129", "dri/renderD128", "dri/card0")
    assert find_gpu(GpuRule((0,)), place).devices == (f"{place}/dri/renderD128", f"{place}/kfd")
    assert find_gpu(GpuRule((1,)), place).devices == (f"{place}/dri/renderD129", f"{place}/kfd")


def test_a_machine_without_one_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(PolicyViolation, match=r"no GPU .*/nvidia0.*/kfd.*renderD128"):
        find_gpu(GpuRule(), dev(tmp_path, "null", "dri/renderD128"))


def test_a_card_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(PolicyViolation, match="no GPU 7; it has: 0, 1"):
        find_gpu(GpuRule((0, 7)), dev(tmp_path, *NVIDIA))


@pytest.mark.parametrize("wrong", ["", "0", "none", [], [-1], [True], [1.0], [64], ["0"], None, 0])
def test_devices_are_all_or_numbers(wrong: object) -> None:
    with pytest.raises(PolicyViolation, match="'all' or a list"):
        gpu_rule(wrong)


def test_numbers_are_sorted_and_each_counts_once() -> None:
    assert gpu_rule([1, 0, 1]) == GpuRule((0, 1))


@pytest.mark.parametrize(("text", "rule"), [("all", GpuRule()), ("0", GpuRule((0,))), ("2,0", GpuRule((0, 2)))])
def test_the_value_of_the_option_is_read(text: str, rule: GpuRule) -> None:
    assert parse_gpu(text) == rule
    assert parse_gpu(str(rule)) == rule


@pytest.mark.parametrize("text", ["", "0,", "a", "0 1", "-1", "²"])
def test_another_value_of_the_option_is_quoted(text: str) -> None:
    with pytest.raises(PolicyViolation, match="names no cards"):
        parse_gpu(text)


def test_the_policy_carries_it_and_its_document_too() -> None:
    assert SandboxPolicy().gpu is None
    assert "gpu" not in SandboxPolicy().to_json()
    assert SandboxPolicy.preset("gpu") == SandboxPolicy.preset("standard").allow_gpu()
    for policy in (SandboxPolicy().allow_gpu(), SandboxPolicy().allow_gpu([0, 1])):
        assert SandboxPolicy.from_json(policy.to_json()) == policy
    with pytest.raises(PolicyViolation, match="'all' or a list"):
        SandboxPolicy.from_json('{"gpu": "some"}')


def test_driver_folders_outside_of_the_system_are_shown(tmp_path: Path) -> None:
    driver = tmp_path / "driver"
    driver.mkdir()
    listed = f"""
    \tlibcuda.so.1 (libc6,x86-64) => {driver}/libcuda.so.1
    \tlibcuda.so (libc6,x86-64) => {driver}/libcuda.so
    \tlibnvidia-ml.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1
    \tlibother.so.1 (libc6,x86-64) => /srv/other/libother.so.1
    """
    assert outside_system(listed) == (str(driver),)
