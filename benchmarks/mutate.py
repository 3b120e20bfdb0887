"""Mutation tests: put in one wrong formula at a time and run the tests of its area.

    python benchmarks/mutate.py                       # all lists in benchmarks/mutations
    python benchmarks/mutate.py gaussian sampler/     # those whose list, name or file contains a word
    python benchmarks/mutate.py --jobs 2 --json

A list is a text file of entries with an empty line between them:

    name | file in src/unnoise | tests: names of files below tests/ without .py, node ids (test_a::test_b), -k words
    - text that occurs exactly once in the file; several such lines follow each other in the file
    + its replacement, of any number of lines
    = equivalent: the reason why no test can notice, where that is so

One process imports torch, numpy, pytest, hypothesis and tokenizers once. Each mutation runs in a fork of it, on a copy of the
package. A mutation is found if a test fails (or runs into the time limit) that passes without the mutation. The exit code is
the number of mutations that survive without being marked as equivalent, or that could not be tested.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LISTS = Path(__file__).parent / "mutations"
FOUND, SURVIVED, EQUIVALENT, BROKEN = "found", "SURVIVED", "equivalent", "BROKEN"


@dataclass(frozen=True)
class Mutation:
    """One wrong formula: `right` occurs once in `file` and becomes `wrong`; `tests` should notice."""

    list: str
    name: str
    file: str
    tests: str
    right: str
    wrong: str
    reason: str = ""
    """why it is equivalent, if it is"""

    def arguments(self) -> list[str]:
        """The tests as arguments of pytest."""
        files = {path.stem: str(path) for path in (ROOT / "tests").rglob("test_*.py")}
        words = shlex.split(self.tests)
        return [re.sub(r"^test_\w+", lambda name: files.get(name[0], f"/{name[0]}.py"), word) for word in words]

    def applied(self, source: str) -> str:
        """The file with the wrong formula, or ValueError."""
        if source.count(self.right) != 1:
            raise ValueError(f"{self.list}: {self.name}: {self.right!r} occurs {source.count(self.right)} times in {self.file}")
        return source.replace(self.right, self.wrong)


def read_list(path: Path) -> Iterator[Mutation]:
    """The mutations of one file."""
    content = "\n".join(line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    for entry in re.split(r"\n\s*\n", content.strip("\n")):
        head, *lines = entry.strip("\n").splitlines()
        parts = [part.strip() for part in head.split(" | ")]
        blocks = {mark: [line[2:] for line in lines if line[:1] == mark] for mark in "-+="}
        reason = " ".join(blocks["="]).removeprefix("equivalent:").strip()
        if len(parts) != 3 or not blocks["-"] or not blocks["+"] or any(line[:1] not in "-+=" for line in lines):
            raise ValueError(f"{path.name}: an entry is `name | file | tests` with lines of -, + and =, found:\n{entry}")
        if bool(reason) != bool(blocks["="]) or (reason and not blocks["="][0].startswith("equivalent:")):
            raise ValueError(f"{path.name}: {parts[0]}: a line with = says `= equivalent: reason`")
        yield Mutation(path.stem, *parts, "\n".join(blocks["-"]), "\n".join(blocks["+"]), reason)


def read_lists(folder: Path = LISTS) -> list[Mutation]:
    """The mutations of all lists of a folder."""
    return [one for path in sorted(folder.glob("*.txt")) for one in read_list(path)]


class FirstFailure:
    """A plug-in of pytest that keeps the id of the first test, or file, that failed."""

    failed = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid


def preload() -> None:
    """Import the large packages, none of which starts a thread, in the process that will be forked."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import hypothesis
    import numpy  # noqa: F401
    import pytest  # noqa: F401
    import tokenizers  # noqa: F401
    import torch

    torch.set_num_threads(1)
    hypothesis.settings.register_profile("mutate", database=None, derandomize=True)
    hypothesis.settings.load_profile("mutate")


def copy_package(folder: Path) -> Path:
    """A copy of the package with its bytecode; models are linked."""
    ignored = shutil.ignore_patterns("__pycache__", "models")
    shutil.copytree(ROOT / "src" / "unnoise", folder / "unnoise", ignore=ignored)
    (folder / "unnoise" / "models").symlink_to(ROOT / "src" / "unnoise" / "models")
    import compileall

    compileall.compile_dir(str(folder / "unnoise"), quiet=2, maxlevels=9)
    return folder


def run_tests(source: Path, arguments: list[str], report: Path, output: Path) -> None:
    """Run pytest in this process, which ends with it."""
    os.setsid()
    write = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(write, 1)
    os.dup2(write, 2)
    code: int = 70
    try:
        import pytest

        sys.path.insert(0, str(source))
        os.environ["PYTHONPATH"] = str(source)
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        sys.dont_write_bytecode = True
        os.chdir(ROOT)
        first = FirstFailure()
        options = ["-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-o", "addopts="]
        code = int(pytest.main([*options, *arguments], plugins=[first]))
        report.write_text(json.dumps({"code": code, "failed": first.failed}))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@dataclass
class Run:
    """A child process that runs tests."""

    pid: int
    start: float
    report: Path
    output: Path

    @classmethod
    def begin(cls, source: Path, arguments: list[str]) -> "Run":
        report, output = source / "report.json", source / "output.txt"
        report.unlink(missing_ok=True)
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            run_tests(source, arguments, report, output)
        return cls(pid, time.monotonic(), report, output)

    def ended(self, limit: float) -> dict[str, Any] | None:
        """The report, or None while the child is running; a child beyond the time limit is ended."""
        late = time.monotonic() - self.start > limit
        if late:
            os.killpg(self.pid, signal.SIGKILL)
        if os.waitpid(self.pid, 0 if late else os.WNOHANG)[0] == 0:
            return None
        if late:
            return {"code": 1, "failed": f"none ended within {limit:.0f} s"}
        if not self.report.exists():
            return {"code": 70, "failed": ""}
        return json.loads(self.report.read_text())

    def wait(self, limit: float) -> dict[str, Any]:
        """The report, when there is one."""
        while (report := self.ended(limit)) is None:
            time.sleep(0.01)
        return report


@dataclass
class Result:
    """The outcome of one mutation."""

    mutation: Mutation
    verdict: str
    by: str
    """the test that failed, or the reason"""
    seconds: float

    def line(self) -> str:
        one = self.mutation
        return f"{self.verdict:10s} {self.seconds:5.1f} s  {one.list}: {one.name} ({one.file})" + (
            f": {self.by}" if self.by else ""
        )


class Slot:
    """A copy of the package in which one mutation at a time is tested."""

    def __init__(self, folder: Path, limit: float, passing: dict[str, bool]):
        self.source, self.limit, self.passing = copy_package(folder), limit, passing
        self.mutation: Mutation | None = None
        self.run: Run | None = None

    def begin(self, mutation: Mutation) -> None:
        """Put the wrong formula in and start the tests."""
        path = self.source / "unnoise" / mutation.file
        path.write_text(
            mutation.applied((ROOT / "src" / "unnoise" / mutation.file).read_text(encoding="utf-8")), encoding="utf-8"
        )
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()
        self.mutation, self.run = mutation, Run.begin(self.source, mutation.arguments())

    def result(self) -> Result | None:
        """The result, or None while the tests are running."""
        assert self.mutation is not None and self.run is not None
        report = self.run.ended(self.limit)
        if report is None:
            return None
        seconds = time.monotonic() - self.run.start
        mutation, self.mutation = self.mutation, None
        shutil.copy2(ROOT / "src" / "unnoise" / mutation.file, self.source / "unnoise" / mutation.file)
        if report["code"] == 0:
            verdict = EQUIVALENT if mutation.reason else SURVIVED
            return Result(mutation, verdict, mutation.reason, seconds)
        if report["code"] in (1, 2) and report["failed"]:
            if self.passes(report["failed"]):
                return Result(mutation, FOUND, report["failed"], seconds)
            return Result(mutation, BROKEN, f"{report['failed']} fails without the mutation too", seconds)
        tail = self.run.output.read_text(encoding="utf-8", errors="replace")[-2000:]
        return Result(mutation, BROKEN, f"the tests could not be run (code {report['code']})\n{tail}", seconds)

    def passes(self, node: str) -> bool:
        """Whether a test, or the collection of a file, succeeds without a mutation; remembered."""
        if " " in node.split("::", maxsplit=1)[0]:  # the time limit
            return True
        if node not in self.passing:
            arguments = [str(ROOT / node)] + ([] if "::" in node else ["--collect-only"])
            self.passing[node] = Run.begin(self.source, arguments).wait(self.limit)["code"] == 0
        return self.passing[node]


def run_all(mutations: list[Mutation], jobs: int, limit: float) -> Iterator[Result]:
    """Test every mutation, `jobs` at a time."""
    waiting, passing = list(reversed(mutations)), dict[str, bool]()
    with tempfile.TemporaryDirectory() as folder:
        slots = [Slot(Path(folder) / str(i), limit, passing) for i in range(min(jobs, len(mutations)))]
        while waiting or any(slot.mutation for slot in slots):
            for slot in slots:
                if slot.mutation is None and waiting:
                    slot.begin(waiting.pop())
                if slot.mutation is not None and (result := slot.result()) is not None:
                    yield result
            time.sleep(0.02)


def main(arguments: list[str]) -> int:
    """Run the mutations that contain a word, or all; return the number of survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of a list's name, a mutation's name or a file")
    parser.add_argument("--lists", type=Path, default=LISTS, help="folder of the lists")
    parser.add_argument("--jobs", type=int, default=1, help="mutations at a time")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for the tests of one mutation")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    options = parser.parse_args(arguments)
    if options.jobs < 1 or not hasattr(os, "fork"):
        parser.error("--jobs must be at least 1, and the system must have fork (Linux, macOS)")
    words = [word.lower() for word in options.words]
    chosen = [
        m for m in read_lists(options.lists) if not words or any(w in f"{m.list} | {m.name} | {m.file}".lower() for w in words)
    ]
    for one in chosen:
        one.applied((ROOT / "src" / "unnoise" / one.file).read_text(encoding="utf-8"))
    preload()
    results, start = [], time.monotonic()
    for result in run_all(chosen, options.jobs, options.limit):
        results.append(result)
        print(result.line(), file=sys.stderr if options.json else sys.stdout, flush=True)
    count = {verdict: sum(result.verdict == verdict for result in results) for verdict in (FOUND, SURVIVED, EQUIVALENT, BROKEN)}
    seconds = time.monotonic() - start
    if options.json:
        found = [
            asdict(result.mutation) | {"verdict": result.verdict, "by": result.by, "seconds": result.seconds}
            for result in results
        ]
        print(json.dumps({"count": count, "seconds": seconds, "results": found}, ensure_ascii=False, indent=1))
    else:
        print(
            f"{len(results)} wrong formulas in {seconds / 60:.1f} minutes: {count[FOUND]} found, {count[SURVIVED]} survived, "
            f"{count[EQUIVALENT]} equivalent, {count[BROKEN]} could not be tested"
        )
        for result in results:
            if result.mutation.reason and result.verdict == FOUND:
                print(f"marked as equivalent, but found: {result.mutation.name}")
    return min(count[SURVIVED] + count[BROKEN], 100)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
