"""An audit of HAM10000's four centres beside how each diagnosis was confirmed: `python -m studies.skin_audit OUT`.

Nobody knows which of these diagnoses are wrong. What is known is how each was confirmed: by histology, follow-up,
consensus or confocal microscopy. Prints the audit, and of each centre's rows the share on its list by confirmation.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter, defaultdict
from pathlib import Path

from fedpca.auditing.one_place import audit_source
from fedpca.auditing.options import AuditOptions
from fedpca.cli.audit import show
from fedpca.data.places import data_folder

SETTINGS = """\
[data]
dataset = "isic2019-ham10000"
split = "column"
column = "center"
group_column = "lesion_id"

[model]
name = "mlp-16"
backbone = "efficientnet-lite0"
backbone_size = 128

[training]
batch = 16
"""
WORST = 0.1  # share of each centre's rows that is compared, where nobody is listed


def main() -> None:
    """Audits the centres and prints what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    settings = out / "skin.toml"
    settings.write_text(SETTINGS, encoding="utf-8")
    found = audit_source([str(settings)], None, (), AuditOptions(images=50), out / "audit")
    show(found.record)
    with (data_folder(None) / "isic2019-ham10000" / "confirmed.csv").open(encoding="utf-8") as file:
        confirmed = {row["path"]: row["confirmed"] for row in csv.DictReader(file)}
    print("\n| centre | confirmed by | rows | among the worst tenth |\n|---|---|---:|---:|")
    for client, rows in found.suspects.items():
        counts: dict[str, Counter[bool]] = defaultdict(Counter)
        ranked = sorted(rows, key=lambda own: own.score)
        worst = {own.row for own in ranked[: int(WORST * len(rows))]}
        for own in rows:
            name = own.path.rpartition("(")[2].rstrip(")")  # "train.parquet row 7 (ISIC_0026769.jpg)"
            how = confirmed.get(name, "?")
            counts[how][own.row in worst] += 1
        for how, own_counts in sorted(counts.items()):
            total = own_counts.total()
            print(f"| {client} | {how} | {total} | {own_counts[True] / total:.3f} |")


if __name__ == "__main__":
    main()
