"""The mutation lists fit the code, and the runner tells the four outcomes apart."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MUTATE = runpy.run_path(str(ROOT / "benchmarks" / "mutate.py"))
LISTS = """
slope | schedule.py | 'test_schedule::test_the_slope_is_the_derivative[offset]'
- return (1 - 2 * self.eps) * self.schedule.alpha_prime(t)
+ return self.schedule.alpha_prime(t)

other slope | schedule.py | 'test_schedule::test_the_slope_is_the_derivative[linear]'
- return (1 - 2 * self.eps) * self.schedule.alpha_prime(t)
+ return self.schedule.alpha_prime(t)

unused | schedule.py | 'test_schedule::test_the_slope_is_the_derivative[linear]'
-         super().__init__()
-         if not 0 <= eps < 1:
+         super().__init__()
+         if not 0 <= eps <= 0.99:
= equivalent: the schedule of this test has no eps

no test | schedule.py | test_schedule -k nothing_like_this
- return (1 - 2 * self.eps) * self.schedule.alpha_prime(t)
+ return self.schedule.alpha_prime(t)
"""


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks" / "mutations").glob("*.txt")), ids=lambda path: path.stem)
def test_every_formula_that_is_to_be_broken_occurs_once(path: Path) -> None:
    mutations = list(MUTATE["read_list"](path))
    assert len({one.name for one in mutations}) == len(mutations) > 0
    for one in mutations:
        wrong = one.applied((ROOT / "src" / "unnoise" / one.file).read_text(encoding="utf-8"))
        assert one.right != one.wrong
        if one.file.endswith(".py"):
            compile(wrong, one.file, "exec")
        assert all(Path(word.split("::")[0]).exists() for word in one.arguments() if word.startswith("/")), one.name


def test_the_runner_tells_what_is_found_from_what_survives(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(LISTS)
    command = [sys.executable, str(ROOT / "benchmarks" / "mutate.py"), "--lists", str(tmp_path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert [one["verdict"] for one in found["results"]] == ["found", "SURVIVED", "equivalent", "BROKEN"]
    assert "test_the_slope_is_the_derivative[offset]" in found["results"][0]["by"]
    assert done.returncode == 2
