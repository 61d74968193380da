import os
from pathlib import Path

import pytest

from otel_llmprism.exporters.ledger_chunks import encode_host_chunk
from otel_llmprism.model.hosts import NO_RANK
from otel_llmprism.native.ledger_layout import ChunkAnchor
from otel_llmprism.receivers.host import HostSampler, to_host_tables
from otel_llmprism.receivers.host_cgroup import parse_cgroups, read_cgroup
from otel_llmprism.receivers.host_cpu import read_cpu
from otel_llmprism.receivers.host_memory import read_memory
from otel_llmprism.receivers.host_pressure import read_pressure
from otel_llmprism.receivers.host_processes import read_processes
from otel_llmprism.receivers.host_reading import HostReading
from otel_llmprism.receivers.host_threads import MAX_THREADS, SCAN_EVERY, ThreadSampler


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


def write_thread(task: Path, thread: int, cpu_s: int, state: str = "S") -> None:
    fields = [state, *["0"] * 10, str(cpu_s * os.sysconf("SC_CLK_TCK")), "0", "0"]
    write(task / f"{thread}/stat", f"{thread} (a (b) c) {' '.join(fields)}\n")
    write(task / f"{thread}/schedstat", f"1 {cpu_s}000000000 5\n")


def test_busiest_threads_are_told_and_their_number_is_bounded(tmp_path: Path) -> None:
    for thread in range(MAX_THREADS + 20):
        write_thread(tmp_path / "9/task", thread, cpu_s=thread, state="R" if thread % 2 else "S")
    readings = list(ThreadSampler(tmp_path).read([9, 10]))
    assert readings[0] == HostReading("process.thread.cpu_s", "35/a (b) c", 35.0, 9)
    assert readings[1] == HostReading("process.thread.wait_s", "35/a (b) c", 35.0, 9)
    assert readings[2 * MAX_THREADS :] == [
        HostReading("process.threads_in_state", "R", MAX_THREADS / 2, 9),
        HostReading("process.threads_in_state", "D", 0, 9),
    ]


def test_thread_that_becomes_busy_is_seen_at_the_next_scan(tmp_path: Path) -> None:
    task = tmp_path / "9/task"
    for thread in range(MAX_THREADS + 1):
        write_thread(task, thread, cpu_s=100 + thread)
    sampler = ThreadSampler(tmp_path)

    def list_seen() -> set[str]:
        readings = sampler.read([9])
        return {one.instance.partition("/")[0] for one in readings if one.name == "process.thread.cpu_s"}

    assert "0" not in list_seen()
    write_thread(task, 0, cpu_s=105)  # still the least in all, the most since
    assert "0" not in list_seen(), "not read in between"
    seen = [list_seen() for _ in range(SCAN_EVERY)]
    assert [tids for tids in seen if tids] == [{"0"}], "the idle ones are told of once"


def test_process_and_its_memory_are_read(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    numbers = ["0"] * 50
    numbers[0], numbers[7], numbers[9], numbers[11], numbers[12] = "R", "55", "3", str(4 * ticks), str(ticks)
    numbers[17] = "21"
    write(tmp_path / "9/stat", f"9 (EngineCore) 0) {' '.join(numbers)}\n")
    write(tmp_path / "9/status", "Name:\tx y\nRssAnon:\t    12 kB\nvoluntary_ctxt_switches:\t7\n")
    readings = list(read_processes([9, 10], tmp_path))
    assert {reading.pid for reading in readings} == {9}
    assert by_name(readings) == {
        "process.cpu_s/user": 4,
        "process.cpu_s/system": 1,
        "process.page_faults/minor": 55,
        "process.page_faults/major": 3,
        "process.threads": 21,
        "process.memory_bytes/RssAnon": 12288,
        "process.main_thread.context_switches/voluntary": 7,
    }


def test_throttling_is_read_where_the_limit_is_set(tmp_path: Path) -> None:
    write(tmp_path / "proc/7/cgroup", "0::/pod/engine\n")
    write(tmp_path / "two/pod/cpu.max", "250000 100000\n")
    write(tmp_path / "two/pod/cpu.stat", "nr_periods 10\nnr_throttled 4\nthrottled_usec 2500000\n")
    write(tmp_path / "two/pod/engine/cpu.max", "max 100000\n")
    write(tmp_path / "two/pod/engine/cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n")
    write(tmp_path / "two/pod/engine/memory.events", "low 0\nhigh 3\noom_kill 1\n")
    values = by_name(list(read_cgroup(7, tmp_path / "proc", tmp_path / "two")))
    assert values == {
        "cgroup.cpu.limit_cores": 2.5,
        "cgroup.cpu.nr_periods": 10,
        "cgroup.cpu.nr_throttled": 4,
        "cgroup.cpu.throttled_s": 2.5,
        "cgroup.memory_events/high": 3,
        "cgroup.memory_events/oom_kill": 1,
    }
    write(tmp_path / "proc/8/cgroup", "2:cpu,cpuacct:/engine\n")
    write(tmp_path / "one/cpu/engine/cpu.cfs_quota_us", "-1\n")
    write(tmp_path / "one/cpu/cpu.cfs_quota_us", "50000\n")
    write(tmp_path / "one/cpu/cpu.cfs_period_us", "100000\n")
    values = by_name(list(read_cgroup(8, tmp_path / "proc", tmp_path / "one")))
    assert values == {"cgroup.cpu.limit_cores": 0.5}


@pytest.mark.parametrize("text", ["", "cpu\n", "garbage without numbers\n", "\xff\xfe"])
def test_unreadable_files_give_nothing(tmp_path: Path, text: str) -> None:
    for name in ("stat", "meminfo", "vmstat", "cpu", "1/cgroup", "1/task/1/stat", "1/stat", "1/status"):
        write(tmp_path / name, text)
    readings = [*read_cpu(tmp_path), *read_memory(tmp_path), *read_pressure(tmp_path)]
    readings += [*ThreadSampler(tmp_path).read([1]), *read_processes([1], tmp_path)]
    assert readings == []


def test_this_host_can_be_read_and_encoded() -> None:
    readings = list(HostSampler().read([os.getpid()]))
    wanted = {"system.cpu.time_s", "process.thread.cpu_s", "process.memory_bytes", "process.cpu_s"}
    assert {reading.name for reading in readings} >= wanted
    tables = to_host_tables(readings, 5, {os.getpid(): 3})
    assert {int(rank) for rank in tables.series.rank[tables.series.pid == os.getpid()]} == {3}
    assert {int(rank) for rank in tables.series.rank[tables.series.pid == 0]} == {NO_RANK}
    assert len(tables.list_names()) == len(readings)
    assert encode_host_chunk(tables, ChunkAnchor(0, 0, 5, 6))
