"""What trackers have written, read back from their own stores."""

import json
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Curves = dict[str, list[tuple[int, float]]]
"""Points (step, value) by the name of the curve."""

_BLOCK, _HEADER = 32768, 7


def wandb_records(folder: Path) -> list[Any]:
    """Return what an offline run of wandb holds, as its own messages.

    The file has 7 bytes of its own, then blocks of 32 KiB with chunks of records: CRC (4), length (2), kind (1: whole,
    2: first, 3: middle, 4: last). wandb's own process may still write the end when a run has ended: it is waited for.
    """
    deadline_s = time.monotonic() + 10.0
    records = _records_so_far(folder)
    while not any(record.HasField("exit") for record in records) and time.monotonic() < deadline_s:
        time.sleep(0.02)
        records = _records_so_far(folder)
    return records


def _records_so_far(folder: Path) -> list[Any]:
    from wandb.proto.wandb_internal_pb2 import Record

    (file,) = folder.glob("run-*.wandb")
    records, begun = [], b""
    for kind, chunk in _chunks(file.read_bytes()):
        begun += chunk
        if kind in (1, 4):
            records.append(Record.FromString(begun))
            begun = b""
    return records


def _chunks(content: bytes) -> Iterator[tuple[int, bytes]]:
    assert content[:4] in (b":W&B", b"")
    at = _HEADER
    while at + _HEADER <= len(content):
        if _BLOCK - at % _BLOCK < _HEADER:
            at += _BLOCK - at % _BLOCK
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        if kind == 0 or at + _HEADER + length > len(content):
            return
        yield kind, content[at + _HEADER : at + _HEADER + length]
        at += _HEADER + length


def wandb_curves(folder: Path) -> Curves:
    curves: Curves = defaultdict(list)
    for record in wandb_records(folder):
        if not record.HasField("history"):
            continue
        for item in record.history.item:
            name = item.key or "/".join(item.nested_key)
            value = json.loads(item.value_json)
            if not name.startswith("_") and isinstance(value, int | float):
                curves[name].append((record.history.step.num, float(value)))
    return curves


def wandb_config(folder: Path) -> dict[str, Any]:
    (run, *_) = [record.run for record in wandb_records(folder) if record.HasField("run")]
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in run.config.update}


def wandb_summary(folder: Path) -> dict[str, Any]:
    summary: dict[str, Any] = {}
    for record in wandb_records(folder):
        if record.HasField("summary"):
            summary |= {item.key or "/".join(item.nested_key): item.value_json for item in record.summary.update}
    return {name: json.loads(value) for name, value in summary.items()}


def wandb_exit_code(folder: Path) -> int:
    (code,) = [record.exit.exit_code for record in wandb_records(folder) if record.HasField("exit")]
    return int(code)


def wandb_decisions(folder: Path) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for table in sorted((folder / "files").rglob("*.table.json"), key=lambda file: file.stat().st_mtime_ns):
        rows += json.loads(table.read_text())["data"]
    return rows


def mlflow_run(root: Path, run_id: str) -> tuple[Any, Curves]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{(root / 'mlflow.db').absolute().as_posix()}")
    run = client.get_run(run_id)
    curves = {
        name: [(point.step, point.value) for point in client.get_metric_history(run_id, name)]
        for name in run.data.metrics
    }
    return run, curves


def trackio_rows(folder: Path, project: str, columns: str, table: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(folder / f"{project}.db")
    try:
        return connection.execute(f"SELECT {columns} FROM {table} ORDER BY id").fetchall()
    finally:
        connection.close()


def trackio_curves(folder: Path, project: str) -> Curves:
    curves: Curves = defaultdict(list)
    for step, metrics in trackio_rows(folder, project, "step, metrics", "metrics"):
        for name, value in json.loads(metrics).items():
            curves[name].append((step, float(value)))
    return curves
