import pytest

from flax_attn.models.cpu import instruction_set


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("fpu avx avx2 avx512f avx512bw avx512vl", "avx512"),
        ("fpu avx avx2 avx512f", "avx2"),
        ("fpu avx avx2 avx_vnni", "avx2"),
        ("fpu avx", "other"),
    ],
)
def test_the_flags_decide(flags, expected):
    cores = [f"processor\t: {i}\nflags\t\t: {flags}\nvmx flags\t: none\n" for i in (0, 1)]
    cpuinfo = "\n".join(cores)
    assert instruction_set.of_flags(cpuinfo) == expected


def test_a_processor_without_flags_is_another():
    assert instruction_set.of_flags("processor\t: 0\nFeatures\t: fp asimd\n") == "other"


@pytest.mark.parametrize(("machine", "expected"), [("x86_64", "avx2"), ("arm64", "other")])
def test_elsewhere_than_on_linux_the_platform_decides(tmp_path, monkeypatch, machine, expected):
    monkeypatch.setattr(instruction_set, "CPUINFO", tmp_path / "none")
    monkeypatch.setattr(instruction_set.platform, "machine", lambda: machine)
    assert instruction_set.of_machine.__wrapped__() == expected


def test_one_in_force_is_taken_and_given_back():
    before = instruction_set.current()
    for name in instruction_set.NAMES:
        with instruction_set.taking(name):
            assert instruction_set.current() == name
    assert instruction_set.current() == before == instruction_set.of_machine()


def test_an_unknown_one_is_refused():
    with pytest.raises(
        ValueError, match="expected an instruction set of avx512, avx2, other, got 'sse'"
    ):
        instruction_set.taking("sse")
