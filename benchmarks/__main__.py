"""Run the benchmarks: `make bench`, or `python -m benchmarks [NAME]... [--quick]`."""

import argparse
import datetime
import sys

from benchmarks import bulk, command, durable, hub_costs, ledger, table, wire


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", help="wire, durable, ledger, hub, bulk, command; default: all"
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds; writes nothing")
    args = parser.parse_args()
    rounds = 3 if args.quick else 11
    parts = {
        "wire": lambda: wire.run(rounds),
        "durable": lambda: durable.run(rounds),
        "ledger": lambda: ledger.run(rounds),
        "hub": lambda: hub_costs.run(rounds, idle_s=5 if args.quick else 60),
        "bulk": lambda: bulk.run(rounds),
        "command": lambda: command.run(rounds),
    }
    unknown = [name for name in args.names if name not in parts]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known are {', '.join(parts)}")
    rows: list[table.Row] = []
    for name in args.names or parts:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        rows += parts[name]()
    print(table.markdown(rows))
    if not args.quick and not args.names:
        table.write(rows, datetime.datetime.now(datetime.UTC).date().isoformat())
        print(f"written to {table.DOCS}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
