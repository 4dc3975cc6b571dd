"""How the settings follow the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from surehook.embedded import settings

GIB = settings.GIB


@pytest.mark.parametrize(
    ("memory", "shared_buffers"),
    [(GIB // 4, "64MB"), (GIB, "128MB"), (8 * GIB, "1024MB"), (512 * GIB, "2048MB")],
)
def test_shared_buffers_follow_the_memory_within_bounds(
    memory: int, shared_buffers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "memory_bytes", lambda: memory)
    assert settings.settings(Path("/"), {}, lz4=False)["shared_buffers"] == shared_buffers


def test_the_smallest_limit_of_a_control_group_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / "unlimited", tmp_path / "small", tmp_path / "absent"]
    files[0].write_text("max\n")
    files[1].write_text(f"{GIB // 8}\n")
    monkeypatch.setattr(settings, "_control_group_files", lambda: files)
    assert settings.memory_bytes() == GIB // 8


def test_overrides_win_and_quotes_are_escaped() -> None:
    chosen = settings.settings(Path("/"), {"fsync": "off", "work_mem": "it's"}, lz4=True)
    text = settings.render(chosen)
    assert "fsync = 'off'" in text and "work_mem = 'it''s'" in text
    assert "wal_compression = 'lz4'" in text
