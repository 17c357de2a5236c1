"""What compare.py has measured, as ratios and as a table."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from peer_setup import ALL

Row = dict[str, Any]
TITLES = {
    "w1": "W1 parse and filter", "w2a": "W2 by OS", "w2b": "W2 by IP", "w3": "W3 sum by key", "w4": "W4 join, count",
    "w5": "W5 = W2 by IP, exactly once",
}  # fmt: skip


def mode_of(row: Row) -> str:
    """Penstock's mode; rows from before continuous mode have none."""
    return row.get("mode") or ("micro_batch" if row["peer"] == "penstock" else "")


def _find(rows: list[Row], workload: str, peer: str, mode: str = "", *, exactly_once: bool = False) -> Row | None:
    """The run with the guarantee that the workload has for everybody, or exactly once; Penstock's in a mode."""
    mode = mode or ("micro_batch" if peer == "penstock" else "")
    wanted = (workload, peer, mode, exactly_once or workload == "w5")
    found = [row for row in rows if (row["workload"], row["peer"], mode_of(row), row["exactly_once"]) == wanted]
    return found[0] if found and found[0]["ok"] else None


def ratios(rows: list[Row], peer: str, figure: str, mode: str = "") -> dict[str, float]:
    """Workload -> Penstock in a mode / peer, of the workloads for which both have a right answer."""
    found = {}
    for workload in TITLES:
        own, other = _find(rows, workload, "penstock", mode), _find(rows, workload, peer)
        if own is not None and other is not None and own.get(figure) and other.get(figure):
            found[workload] = round(own[figure] / other[figure], 2)
    return found


def continuous_ratios(rows: list[Row]) -> dict[str, dict[str, float]]:
    """Continuous mode against Kafka Streams, and against micro-batches with the same guarantee, by the steady rate."""
    found = {"continuous/kstreams": ratios(rows, "kstreams", "steady_records_per_s", "continuous")}
    for exactly_once in (False, True):
        name = f"continuous/micro-batches, {'exactly' if exactly_once else 'at least'} once"
        pairs = {
            workload: [
                _find(rows, workload, "penstock", mode, exactly_once=exactly_once)
                for mode in ("continuous", "micro_batch")
            ]
            for workload in TITLES
            if exactly_once or workload != "w5"
        }
        found[name] = {
            workload: round(own["steady_records_per_s"] / other["steady_records_per_s"], 2)
            for workload, (own, other) in pairs.items()
            if own and other
        }
    return found


def more_ratios(rows: list[Row]) -> dict[str, dict[str, float]]:
    """Against the other peers, and by the other figures; CPU seconds and memory: less than 1 is less than they need."""
    peers = {f"penstock/{peer}": ratios(rows, peer, "steady_records_per_s") for peer in ("quix", "bytewax", "faust")}
    figures = ("warm_records_per_s", "outputs_records_per_s", "whole_records_per_s", "cpu_s_per_million", "peak_pss_mb")
    return peers | {f"penstock/kstreams {figure}": ratios(rows, "kstreams", figure) for figure in figures}


def exactly_once_cost(rows: list[Row]) -> dict[str, float]:
    """Workload -> the part of Penstock's rate that exactly once takes: 0.05 is five percent."""
    own = [row for row in rows if row["peer"] == "penstock" and mode_of(row) == "micro_batch" and row["ok"]]
    exact = {row["workload"]: row["steady_records_per_s"] for row in own if row["exactly_once"]}
    exact["w2b"] = exact.pop("w5", None) or 0
    loose = {row["workload"]: row["steady_records_per_s"] for row in own if not row["exactly_once"]}
    return {w: round(1 - exact[w] / rate, 3) for w, rate in loose.items() if exact.get(w)}


def line(row: Row) -> str:
    """One run, as it is printed when it is over."""
    name = f"{row['workload']:4} {row['peer']:9} {row.get('mode', ''):11} {'exactly once' if row['exactly_once'] else 'at least once':13}"
    if not row["ok"]:
        reached = row.get("reached")
        so_far = f" ({reached['records']:,} records until then, {reached['records_per_s']:,}/s)" if reached else ""
        return f"{name} NO RESULT{so_far}: {row.get('detail', '')[-600:]}"
    warm = f"{row['warm_records_per_s']:,}" if row["warm_records_per_s"] else "-"
    return (
        f"{name} {row['steady_records_per_s']:>9,} records/s (warm {warm}, whole {row['whole_records_per_s']:,}), "
        f"{row['cpu_s_per_million']:.1f} CPU s a million, {row['peak_pss_mb']:,} MB; {row['detail']}"
    )


def latency_line(row: Row) -> str:
    name = f"{row['peer']:9} {row['mode']:11} {'exactly once' if row['exactly_once'] else 'at least once':13}"
    if row.get("commit_interval_ms") is not None:
        name += f" {row['commit_interval_ms']:>4} ms"
    if row.get("p50_ms") is None:
        return f"latency {name} NO RESULT: {row.get('detail', '')[-600:]}"
    return (
        f"latency {name} median {row['p50_ms']} ms, 90th {row['p90_ms']}, 99th {row['p99_ms']}, largest {row['max_ms']} "
        f"({row['answered']:,} of {row['records']:,} records); {row['cores_used']} cores, {row['peak_pss_mb']:,} MB"
    )


def show(report: Row) -> None:
    """The tables, at the end."""
    console = Console(width=None if Console().is_terminal else 150)
    rows = report["results"]
    if rows:
        table = Table(
            title=f"{report['records']:,} records an input topic, {report['cores']} cores", title_justify="left"
        )
        headings = ("steady/s", "of Kafka Streams", "warm/s", "outputs/s", "whole/s", "CPU s / million", "after start",
                    "broker's", "peak MB")  # fmt: skip
        table.add_column("workload")
        table.add_column("peer")
        for heading in headings:
            table.add_column(heading, justify="right")
        for workload, title in TITLES.items():
            for number, row in enumerate(row for row in rows if row["workload"] == workload):
                table.add_row("" if number else title, *_cells(row, _find(rows, workload, "kstreams")))
            table.add_section()
        console.print(table)
        console.print("Penstock / Kafka Streams, steady:", report["ratios"])
        for name, found in report["continuous_ratios"].items():
            console.print(f"{name}, steady:", found)
        for name, found in report["more_ratios"].items():
            if found:
                console.print(f"{name}:", found)
        console.print("exactly once takes of Penstock's rate:", report["exactly_once_cost"])
    for row in report["latency"]:
        console.print(latency_line(row))
    for name, why in report["missing"].items():
        console.print(f"not installed: {ALL[name].title}: {why}")


def _cells(row: Row, java: Row | None) -> list[str]:
    name = ALL[row["peer"]].title + (", continuous" if row.get("mode") == "continuous" else "")
    name += ", exactly once" if row["exactly_once"] else ""
    if row["records"] != max(round(row["records"] / ALL[row["peer"]].share), 1):
        name += f" ({row['records']:,})"
    if not row["ok"]:
        reached = row.get("reached")
        return [name, f"({reached['records_per_s']:,})" if reached else "no result", row.get("detail", "")[:60]]
    own = row["steady_records_per_s"]
    ratio = f"{own / java['steady_records_per_s']:.2f}" if java else "-"
    warm = f"{row['warm_records_per_s']:,}" if row["warm_records_per_s"] else "-"
    rates = [f"{row[figure]:,}" for figure in ("outputs_records_per_s", "whole_records_per_s")]
    cpu = [
        f"{row[figure]:.1f}"
        for figure in ("cpu_s_per_million", "cpu_s_per_million_after_start", "broker_cpu_s_per_million")
    ]
    return [name, f"{own:,}", ratio, warm, *rates, *cpu, f"{row['peak_pss_mb']:,}"]
