"""Control groups read from folders that look like those of other machines."""

from pathlib import Path

import pytest

from trainauto.core.cgroup import cpu_quota, tightest_memory_limit

GIB = 2**30


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")


def own(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "own"
    file.write_text(text)
    return file


def test_version_2_the_level_that_leaves_least_counts(tmp_path: Path) -> None:
    root = tmp_path / "fs"
    write(
        root,
        {
            "pod/memory.max": str(8 * GIB),
            "pod/memory.current": str(5 * GIB),
            "pod/memory.stat": f"anon 1\ninactive_file {GIB}",
            "pod/job/memory.max": "max",
            "pod/job/memory.current": str(GIB),
            "pod/job/inner/memory.max": str(6 * GIB),
            "pod/job/inner/memory.current": str(GIB),
            "pod/cpu.max": "150000 100000",
            "pod/job/cpu.max": "max 100000",
            "cpu.max": "400000 100000",
        },
    )
    at = own(tmp_path, "0::/pod/job/inner\n")
    found = tightest_memory_limit(at, root)
    assert found is not None
    assert (found.limit_bytes, found.free_bytes, found.folder) == (8 * GIB, 4 * GIB, root / "pod")
    assert cpu_quota(at, root) == 1.5


def test_version_1_and_no_limit(tmp_path: Path) -> None:
    root = tmp_path / "fs"
    write(
        root,
        {
            "memory/a/memory.limit_in_bytes": str(3 * GIB),
            "memory/a/memory.usage_in_bytes": str(4 * GIB),
            "memory/memory.limit_in_bytes": "9223372036854771712",
            "memory/memory.usage_in_bytes": str(9 * GIB),
            "cpu,cpuacct/cpu.cfs_quota_us": "-1",
            "cpu,cpuacct/cpu.cfs_period_us": "100000",
        },
    )
    lines = "9:name=systemd:/\n4:memory:/{}\n2:cpu,cpuacct:/\n0::/\n"
    found = tightest_memory_limit(own(tmp_path, lines.format("a/b")), root)
    assert found is not None
    assert (found.limit_bytes, found.free_bytes) == (3 * GIB, 0)
    assert tightest_memory_limit(own(tmp_path, lines.format("")), root) is None
    assert cpu_quota(own(tmp_path, lines.format("")), root) is None


def test_in_a_container_the_path_may_be_the_hosts(tmp_path: Path) -> None:
    root = tmp_path / "fs"
    write(root, {"memory.max": str(2 * GIB), "memory.current": str(GIB), "cpu.max": "50000 100000"})
    at = own(tmp_path, "0::/../../docker/0123\n")
    found = tightest_memory_limit(at, root)
    assert found is not None
    assert found.free_bytes == GIB
    assert cpu_quota(at, root) == 0.5


@pytest.mark.parametrize("text", ["", "max 0", "-1 0", "words"])
def test_what_makes_no_sense_is_no_limit(tmp_path: Path, text: str) -> None:
    root = tmp_path / "fs"
    write(root, {"memory.max": text, "memory.current": text, "cpu.max": text})
    at = own(tmp_path, "0::/\n")
    assert tightest_memory_limit(at, root) is None
    assert cpu_quota(at, root) is None


def test_groups_that_cannot_be_seen_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        tightest_memory_limit(tmp_path / "missing", tmp_path)
