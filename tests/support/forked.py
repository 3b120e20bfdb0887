"""Run Python in new processes that do not import torch again.

The processes are forks of one template process that has imported the large packages, but nothing of unnoise. A start takes a
few hundredths of a second instead of one and a half. A test of the start itself (imports, Ctrl-C) uses `subprocess`.
"""

import multiprocessing
import os
import runpy
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from subprocess import CompletedProcess

TEMPLATE = multiprocessing.get_context("forkserver")
TEMPLATE.set_forkserver_preload(
    ["torch", "torch._dynamo", "torch.distributed.fsdp", "numpy", "safetensors.torch", "tokenizers", "tyro", "rich.progress"]
)


def execute(arguments: Sequence[str], cwd: str, environment: dict[str, str], out: str, err: str) -> None:
    """Do what `python *arguments` does, in this process."""
    for file, descriptor in ((out, 1), (err, 2)):
        os.dup2(os.open(file, os.O_WRONLY), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    here, *rest = arguments
    sys.path[:0] = environment.get("PYTHONPATH", "").split(os.pathsep)
    match here:
        case "-c":
            code, *sys.argv[1:] = rest
            sys.argv[0] = "-c"
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        case "-m":
            module, *sys.argv[1:] = rest
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case _:
            sys.argv[:] = arguments
            runpy.run_path(here, run_name="__main__")


def start(
    arguments: Sequence[str], cwd: Path | None = None, env: Mapping[str, str] | None = None, out: str = "", err: str = ""
) -> BaseProcess:
    """Start `python *arguments`; `out` and `err` are existing files for its output, /dev/null by default."""
    given = ([*map(str, arguments)], str(cwd or Path.cwd()), dict(os.environ if env is None else env))
    process = TEMPLATE.Process(target=execute, args=(*given, out or os.devnull, err or os.devnull))
    process.start()
    return process


def run(
    arguments: Sequence[str], cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = 300
) -> CompletedProcess[str]:
    """Run `python *arguments` to its end and return its output, as `subprocess.run` does."""
    with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
        process = start(arguments, cwd, env, out.name, err.name)
        process.join(timeout)
        if process.is_alive():
            process.kill()
            process.join()
        assert process.exitcode is not None
        return CompletedProcess([*arguments], process.exitcode, out.read(), err.read())
