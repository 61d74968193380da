import os
from pathlib import Path

import pytest

from otel_llmprism.exporters.ledger_chunks import encode_host_chunk
from otel_llmprism.native.ledger_layout import ChunkAnchor
from otel_llmprism.receivers.host import read_host, to_host_tables
from otel_llmprism.receivers.host_cgroup import parse_cgroups, read_cgroup
from otel_llmprism.receivers.host_cpu import read_cpu
from otel_llmprism.receivers.host_memory import read_memory
from otel_llmprism.receivers.host_pressure import read_pressure
from otel_llmprism.receivers.host_reading import HostReading
from otel_llmprism.receivers.host_threads import MAX_THREADS, read_threads


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def by_name(readings: list[HostReading]) -> dict[str, float]:
    return {f"{reading.name}/{reading.instance}".rstrip("/"): reading.value for reading in readings}


def test_cpu_seconds_come_from_the_first_line_by_state(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    write(
        tmp_path / "stat", f"cpu  {ticks} 0 {2 * ticks} {30 * ticks}\ncpu0 1 2 3\nctxt 77\nprocs_running 3\n"
    )
    values = by_name(list(read_cpu(tmp_path)))
    assert values["system.cpu.time_s/user"] == 1
    assert values["system.cpu.time_s/idle"] == 30
    assert values["system.context_switches"] == 77
    assert "system.cpu.time_s/steal" not in values


def test_memory_is_in_bytes(tmp_path: Path) -> None:
    write(tmp_path / "meminfo", "MemTotal:       1000 kB\nMemAvailable:    250 kB\nHugePages_Total:   0\n")
    write(tmp_path / "vmstat", "pgmajfault 12\noom_kill 1\n")
    values = by_name(list(read_memory(tmp_path)))
    assert values == {
        "system.memory_bytes/MemTotal": 1_024_000,
        "system.memory_bytes/MemAvailable": 256_000,
        "system.memory_events/pgmajfault": 12,
        "system.memory_events/oom_kill": 1,
    }


def test_pressure_is_in_seconds(tmp_path: Path) -> None:
    write(tmp_path / "cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0 total=7\n")
    assert by_name(list(read_pressure(tmp_path))) == {
        "system.pressure_s/cpu/some": 1.5,
        "system.pressure_s/cpu/full": 7e-6,
    }


def test_throttling_and_limits_are_read_from_both_cgroup_versions(tmp_path: Path) -> None:
    write(tmp_path / "proc/7/cgroup", "0::/pod/engine\n")
    two = tmp_path / "two" / "pod" / "engine"
    write(two / "cpu.stat", "usage_usec 5\nnr_periods 10\nnr_throttled 4\nthrottled_usec 2500000\n")
    write(two / "memory.current", "1000\n")
    write(two / "memory.max", "max\n")
    values = by_name(list(read_cgroup(7, tmp_path / "proc", tmp_path / "two")))
    assert values["cgroup.cpu.throttled_s"] == 2.5
    assert values["cgroup.memory_bytes/usage"] == 1000
    assert "cgroup.memory_bytes/limit" not in values

    write(tmp_path / "proc/8/cgroup", "4:memory:/engine\n2:cpu,cpuacct:/engine\n0::/\n")
    write(tmp_path / "one/cpu/engine/cpu.stat", "nr_periods 10\nnr_throttled 4\nthrottled_time 2500000000\n")
    write(tmp_path / "one/memory/engine/memory.limit_in_bytes", f"{1 << 30}\n")
    values = by_name(list(read_cgroup(8, tmp_path / "proc", tmp_path / "one")))
    assert values["cgroup.cpu.throttled_s"] == 2.5
    assert values["cgroup.memory_bytes/limit"] == 1 << 30


def test_group_path_of_the_host_falls_back_to_the_containers_root(tmp_path: Path) -> None:
    write(tmp_path / "proc/7/cgroup", "0::/../../kubepods/pod1\n")
    write(tmp_path / "root" / "cpu.stat", "nr_periods 3\n")
    assert by_name(list(read_cgroup(7, tmp_path / "proc", tmp_path / "root"))) == {"cgroup.cpu.nr_periods": 3}


def test_cgroup_lines_are_split_at_the_first_two_colons() -> None:
    assert parse_cgroups("1:name=a:/x:y\n0::/z\n") == {"name=a": "/x:y", "": "/z"}


def test_busiest_threads_are_told_and_their_number_is_bounded(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    for thread in range(MAX_THREADS + 20):
        fields = ["S", *["0"] * 10, str(thread * ticks), "0", "0"]
        write(tmp_path / f"9/task/{thread}/stat", f"{thread} (a (b) c) {' '.join(fields)}\n")
        write(tmp_path / f"9/task/{thread}/schedstat", f"1 {thread}000000000 5\n")
    readings = list(read_threads([9, 10], tmp_path))
    assert len(readings) == 2 * MAX_THREADS
    assert readings[0] == HostReading("process.thread.cpu_s", "83/a (b) c", 83.0, 9)
    assert readings[1] == HostReading("process.thread.wait_s", "83/a (b) c", 83.0, 9)


@pytest.mark.parametrize("text", ["", "cpu\n", "garbage without numbers\n", "\xff\xfe"])
def test_unreadable_files_give_nothing(tmp_path: Path, text: str) -> None:
    for name in ("stat", "meminfo", "vmstat", "cpu", "1/cgroup", "1/task/1/stat"):
        write(tmp_path / name, text)
    readings = [*read_cpu(tmp_path), *read_memory(tmp_path), *read_pressure(tmp_path)]
    assert readings + list(read_threads([1], tmp_path)) == []


def test_this_host_can_be_read_and_encoded() -> None:
    readings = list(read_host([os.getpid()]))
    assert {reading.name for reading in readings} >= {"system.cpu.time_s", "process.thread.cpu_s"}
    tables = to_host_tables(readings, 5)
    assert len(tables.list_names()) == len(readings)
    assert encode_host_chunk(tables, ChunkAnchor(0, 0, 5, 6))
