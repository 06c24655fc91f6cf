"""`python -m kds_cdc_dagster_tests.gate`: print the table; exit code 1 if anything differs."""

from __future__ import annotations

import argparse
import logging
import sys

from kds_cdc_dagster_tests.gate.line import STAGES
from kds_cdc_dagster_tests.gate.proof import WAREHOUSES, prove


def main(arguments: list[str] | None = None) -> int:
    """Prove on the wanted warehouses; the exit code."""
    parser = argparse.ArgumentParser(prog="gate", description=__doc__)
    parser.add_argument("--warehouse", choices=[*WAREHOUSES], action="append", help="Only this one (may be repeated).")
    parser.add_argument("--stage", choices=STAGES, action="append", help="Only this one (may be repeated).")
    chosen = parser.parse_args(arguments)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    print(f"{'stage':<8} {'fault':<27} {'warehouse':<9} result")
    cells = []
    for name in chosen.warehouse or WAREHOUSES:
        with WAREHOUSES[name]() as new_line:
            for cell in prove(name, new_line, stages=chosen.stage or STAGES):
                print(cell.text(), flush=True)
                cells.append(cell)
    different = sum(not cell.is_same for cell in cells)
    print(f"{len(cells)} cells, {different} differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
