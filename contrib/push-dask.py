#!/usr/bin/env python3
"""Runs the jobs of `outpour-lab bench push` on a Dask cluster whose workers share a directory.

    python3 contrib/push-dask.py [--scheduler tcp://host:8786] [experiments] -- [options of bench push]

Jobs run in the directory in which this is called, wherever workers were started, so relative paths such as the default
of --jobs mean the same to all. Without a scheduler it starts workers on this machine. Afterwards
`outpour-lab bench push all page`, with the same options and the same program, puts together what the jobs left. Jobs
that were done before are skipped.
"""

import argparse
import os
import subprocess
import sys

from dask.distributed import Client, as_completed

LAB = ["outpour-lab", "bench", "push"]


def names(experiments: list[str], options: list[str]) -> list[str]:
    found = subprocess.run(
        [*LAB, "jobs", *experiments, *options], check=True, capture_output=True, text=True
    )
    return found.stdout.split()


def run(name: str, options: list[str], directory: str) -> tuple[str, int, str]:
    done = subprocess.run(
        [*LAB, "--job", name, *options], capture_output=True, text=True, cwd=directory
    )
    return name, done.returncode, done.stderr.strip()


def main() -> int:
    arguments, options = sys.argv[1:], []
    if "--" in arguments:
        split = arguments.index("--")
        arguments, options = arguments[:split], arguments[split + 1 :]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scheduler", help="address of a Dask scheduler")
    parser.add_argument("experiments", nargs="*", help="all if none is named")
    args = parser.parse_args(arguments)
    failed, here = 0, os.getcwd()
    with Client(args.scheduler) as client:
        jobs = client.map(
            lambda name: run(name, options, here), names(args.experiments, options), pure=False
        )
        for _, (name, code, said) in as_completed(jobs, with_results=True):
            failed += code != 0
            print(said or f"{name}: done", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
