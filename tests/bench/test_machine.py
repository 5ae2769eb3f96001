from __future__ import annotations

import os
import sys

import pytest

from longspan.bench import machine


def test_starts_anew_once_with_freed_memory_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda path, args, env: started.append((args, env)))
    monkeypatch.setattr(machine.platform, "libc_ver", lambda: ("glibc", "2.36"))
    for name in machine.WARM:
        monkeypatch.delenv(name, raising=False)
    machine.warm_allocator(["bench", "cpu"])
    ((arguments, environment),) = started
    assert arguments == [sys.executable, "-m", "longspan", "bench", "cpu"]
    assert machine.WARM.items() <= environment.items()
    for name, value in machine.WARM.items():
        monkeypatch.setenv(name, value)
    machine.warm_allocator(["bench", "cpu"])
    assert len(started) == 1


def test_another_libc_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.platform, "libc_ver", lambda: ("", ""))
    for name in machine.WARM:
        monkeypatch.delenv(name, raising=False)
    assert machine.is_warm()


def test_the_setting_names_versions_threads_and_allocator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "7")
    monkeypatch.delenv("MALLOC_MMAP_THRESHOLD_", raising=False)
    found = machine.setting(2)
    assert found["threads"] == 2
    assert found["clock"] == "wall time"
    assert machine.setting(1)["clock"] == "process CPU time"
    assert found["allocator"] == {"MALLOC_TRIM_THRESHOLD_": "7"}
    assert set(found["versions"]) == {"longspan", *machine.PEERS}
    assert found["processor"]
