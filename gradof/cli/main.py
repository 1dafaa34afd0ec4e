"""The `gradof` command.

Exit codes: 0 fine, 1 a wrong gradient (`check`), 2 bad input or a function gradof cannot follow,
3 an exception out of the target's own code, with its traceback.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

import click

from gradof import __version__
from gradof.cli.stages import STAGES
from gradof.errors import GradofError

_TARGET_HELP = """TARGET is file.py:function or package.module:function. Its inputs come from --arg,
or from a function example_inputs() beside it that returns a tuple of arguments.

\b
Examples:
  gradof {name} examples/mlp.py:loss{first}
  gradof {name} mypackage.model:loss --arg x=f32[4,3] --arg power=2{more}
"""
_OPT_HELP = """\b
Examples:
  gradof show examples/mlp.py:loss --stage f > f.ir
  gradof opt f.ir -p common-subexpression -p eliminate-dead-code
  gradof opt f.ir -p reverse   its reverse; -p df: the gradient as a graph of its own
  gradof opt f.ir -p fuse --target triton
  gradof opt k.nest -p sums-by-blas --target tiles    loop nests, as show --stage fused has them
  gradof opt < f.ir            parse, verify and print
"""
_OPS_HELP = """\b
Examples:
  gradof ops --name softmax    what serves torch.softmax?
  gradof ops | cut -f1         schemas alone
"""
_COVERAGE_HELP = """\b
Examples:
  gradof coverage                     everything, and write docs/coverage.md
  gradof coverage --dtype f64 --op fft
"""


_FUZZ_HELP = """\b
Examples:
  gradof fuzz --minutes 10                     torch programs, from seed 0 on
  gradof fuzz --library numpy --programs 200 --seed 5000
  gradof fuzz --subject torch.compile          another compiler's first gradients
"""


class _Group(click.Group):
    """Turns gradof's errors into a message on stderr and exit code 2, the target's into 3."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except GradofError as error:
            from gradof.cli.render import print_error

            print_error(error)
            ctx.exit(2)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise  # click's own
        except Exception:  # the target's code may raise anything; Python's 1 would mean "wrong"
            traceback.print_exc()
            ctx.exit(3)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]},
             invoke_without_command=True)  # fmt: skip
@click.version_option(__version__, prog_name="gradof")
@click.pass_context
def main(context: click.Context) -> None:
    """gradof: gradients you can check, and code you can read.

    \b
    gradof show  examples/mlp.py:loss --stage f     print a stage of the compilation
    gradof explore examples/mlp.py:loss -o mlp.html the whole compilation as one page
    gradof check examples/mlp.py:loss               compare with eager, float64, finite differences
    gradof opt   graph.ir -p eliminate-dead-code    run passes over textual IR
    gradof export examples/mlp.py:loss -o mlp.py    f and df as a file that imports numpy only
    gradof ops                                      list the registered ops
    gradof coverage --op softmax                    every sample of torch's own table of ops
    gradof fuzz --minutes 10                        random programs, to second gradients

    Exit codes: 0 fine, 1 a wrong gradient, 2 bad input or a function that cannot be followed,
    3 an exception of the target's own.
    """
    if context.invoked_subcommand is None:
        from gradof.cli.start import print_start

        print_start()


_arg = click.option(
    "--arg", "args", multiple=True, metavar="NAME=SPEC",
    help="an input: a type such as f32[4,3] (random values) or a Python literal; repeatable",
)
_library = click.option(
    "--library", type=click.Choice(["numpy", "torch"]),
    help="whose arrays --arg makes [default: torch if the target's module imports it]",
)


@main.command(epilog=_TARGET_HELP.format(name="show", first="", more=" --stage df"))
@click.argument("target")
@click.option(
    "--stage", type=click.Choice(sorted(STAGES)), default="trace", show_default=True,
    help="trace: the SSA graph; reverse: f with its GradOf blocks; f, df: the split; "
    "fused: what one loop computes; numpy: the emitted source of both; "
    "triton: the kernels a GPU would run; explain: what is saved, and why; "
    "passes: the graph after each pass",
)
@click.option("--after", metavar="PASS", help="the graphs after this pass alone (stage passes)")
@click.option("--locs/--no-locs", default=True, help="print the user's lines [default: on]")
@_arg
@_library
def show(
    target: str, stage: str, after: str | None, locs: bool, args: tuple[str, ...], library: Any
) -> None:
    """Print one stage of the compilation of TARGET."""
    from gradof.cli.render import print_code
    from gradof.cli.stages import render_stage
    from gradof.cli.target import inputs_for, load_target

    fn, module = load_target(target)
    positional, named = inputs_for(fn, module, args, library)
    stage = "passes" if after else stage
    text, language = render_stage(stage, fn, positional, named, locs=locs, after=after)
    print_code(text, language)


@main.command(epilog=_TARGET_HELP.format(name="explore", first=" -o loss.html", more=" --check"))
@click.argument("target")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="PATH",
              help="the page to write; NAME.json, a step as a Chrome trace; NAME.dot or NAME.onnx, "
              "the graph for Graphviz or Netron [default: NAME.html]")  # fmt: skip
@click.option("--calls", type=click.IntRange(1), default=3, show_default=True,
              help="calls of TARGET before, to see whether it is traced again")  # fmt: skip
@click.option("--check/--no-check", "checked", default=False,
              help="compare with eager and float64, op by op")  # fmt: skip
@click.option("--time/--no-time", "timed", default=True, help="run f and df, to time them")
@_arg
@_library
def explore(
    target: str, output: Path | None, calls: int, checked: bool, timed: bool,
    args: tuple[str, ...], library: Any,
) -> None:  # fmt: skip
    """Write the whole compilation of TARGET as one page, to be opened in a browser."""
    from gradof.cli.explore import write_page

    path = write_page(target, output, args, library, calls=calls, checked=checked, timed=timed)
    where = {".json": "ui.perfetto.dev or chrome://tracing", ".dot": "Graphviz",
             ".onnx": "netron.app"}  # fmt: skip
    click.echo(f"{path}: {path.stat().st_size / 1e3:.0f} kB, "
               f"for {where.get(path.suffix, 'a browser')}")  # fmt: skip


@main.command(epilog=_OPT_HELP)
@click.argument("file", default="-", metavar="[FILE]")
@click.option(
    "-p", "--pass", "passes", multiple=True, metavar="PASS",
    help="a pass to run, in order; repeatable; `gradof opt --list` names them",
)
@click.option("--target", default="native", show_default=True, metavar="NAME",
              help="whose rules a target's pass follows: numpy, tiles, native, triton")  # fmt: skip
@click.option("--list", "listing", is_flag=True, help="list the passes of the whole pipeline")
def opt(file: str, passes: tuple[str, ...], target: str, listing: bool) -> None:
    """Parse textual IR from FILE (default: standard input), verify it, run passes, print it."""
    from gradof.cli.passes import pass_lines, run_named, run_on_nests
    from gradof.cli.render import print_code
    from gradof.errors import ParseError, TargetError
    from gradof.ir.parser import parse_graph
    from gradof.ir.verify import verify

    if listing:
        for line in pass_lines():
            click.echo(line)
        return
    if file != "-" and not Path(file).is_file():
        raise TargetError(f"no file {file}")
    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ParseError(
            f"byte {data[error.start]:#04x} is not UTF-8",
            line=data[: error.start].count(b"\n") + 1,
            column=error.start - data.rfind(b"\n", 0, error.start),
            source="<stdin>" if file == "-" else file, hint="save the text as UTF-8",
        ) from None
    source = "<stdin>" if file == "-" else file
    if text.split(None, 1)[:1] == ["nest"]:
        print_code(run_on_nests(text, passes, target, source), "gradof-ir")
        return
    graph = parse_graph(text, source)
    verify(graph)
    print_code(str(run_named(graph, passes, target)), "gradof-ir")


@main.command(epilog=_TARGET_HELP.format(name="check", first="", more=" --order 2"))
@click.argument("target")
@click.option("--order", type=click.IntRange(1, 2), default=1, show_default=True,
              help="2 checks second derivatives too")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="of the random cotangents")
@click.option("--per-op", is_flag=True, help="test every op by itself, and list them by line")
@click.option("--write", type=click.Path(dir_okay=False, path_type=Path), metavar="PATH",
              help="the failing program [default: gradof_NAME_failure.py]")  # fmt: skip
@click.option("--shrink/--no-shrink", default=True, show_default=True,
              help="look for the smallest failing program and write it")  # fmt: skip
@_arg
@_library
def check(
    target: str, order: int, seed: int, per_op: bool, write: Path | None, shrink: bool,
    args: tuple[str, ...], library: Any,
) -> None:  # fmt: skip
    """Compare TARGET's values and gradients with eager, float64 and finite differences.

    Where one is wrong, the smallest part of the function that is wrong by itself is written as a
    Python file that runs. Exit code 0 if all agree, 1 if one is wrong.
    """
    from gradof.cli.progress import progress
    from gradof.cli.target import inputs_for, load_target
    from gradof.runtime.function import Differentiated
    from gradof.testing import check as run_check

    fn, module = load_target(target)
    plain = fn.fn if isinstance(fn, Differentiated) else fn
    positional, named = inputs_for(plain, module, args, library)
    with progress("comparing with eager and float64"):
        report = run_check(plain, positional, named, order=order, seed=seed, per_op=per_op,
                           raise_on_error=False)  # fmt: skip
    click.echo(str(report))
    if not report.ok and shrink:
        from gradof.testing.failures import file_name, write_failure

        path = write or Path(file_name(report.name))
        with progress("looking for the smallest failing program"):
            found = write_failure(plain, positional, named, report, path, order=order, seed=seed)
        click.echo(f"the smallest failing program: {found}" if found else
                   "no smaller part of it is wrong by itself")  # fmt: skip
    if not report.ok:
        raise click.exceptions.Exit(1)


_FILES = {"first": " --backend triton -o loss_triton.py", "more": " -o loss_numpy.py"}


@main.command(epilog=_TARGET_HELP.format(name="export", **_FILES))
@click.argument("target")
@click.option("--backend", type=click.Choice(["numpy", "triton"]), default="numpy",
              show_default=True, help="what the file imports; triton: and torch")  # fmt: skip
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), required=True,
              metavar="PATH", help="the file to write")  # fmt: skip
@click.option("--force", is_flag=True, help="write over a file that exists")
@_arg
@_library
def export(
    target: str, backend: str, output: Path, force: bool, args: tuple[str, ...], library: Any
) -> None:
    """Write TARGET and its gradient as a file that does not need gradof, for these shapes.

    numpy: functions f and df. triton: kernels, and a torch.autograd.Function that launches them.
    The file is run before it is written, and compared with the function it came from.
    """
    from gradof.cli.export import export_numpy, write_export
    from gradof.cli.export_triton import export_triton
    from gradof.cli.target import inputs_for, load_target

    fn, module = load_target(target)
    positional, named = inputs_for(fn, module, args, library)
    make = {"numpy": export_numpy, "triton": export_triton}[backend]
    text = make(fn, positional, named)
    write_export(text, output, force)
    click.echo(f"{output}: {len(text.splitlines())} lines, verified")


@main.command(epilog=_OPS_HELP)
@click.option("--name", "pattern", default="", help="only ops whose name or API names contain this")
def ops(pattern: str) -> None:
    """List the registered ops: schema, what is differentiable, API names."""
    from gradof.cli.render import print_ops
    from gradof.ops.registry import all_ops

    chosen = [o for o in all_ops() if pattern in o.name or any(pattern in n for n in o.names)]
    print_ops(chosen)


@main.command()
def doctor() -> None:
    """Tell what is installed, and what gradof uses of it for large arrays."""
    from gradof.cli.doctor import print_report

    print_report()


@main.command(epilog=_COVERAGE_HELP)
@click.option("--dtype", "dtypes", default="f32,f64,bf16,f16", show_default=True, metavar="LIST",
              help="dtypes of the inputs: f32, f64, f16, bf16")  # fmt: skip
@click.option("--op", "pattern", default="", help="only torch's ops whose name contains this")
@click.option("--jobs", type=click.IntRange(1), help="processes [default: one per core]")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), metavar="PATH",
              help="the page to write after a whole run [default: docs/coverage.md]")  # fmt: skip
def coverage(dtypes: str, pattern: str, jobs: int | None, output: Path | None) -> None:
    """Run torch's table of ops and numpy's table of cases, right to second gradients.

    Exit code 0 if nothing is wrong. Needs torch and its test dependency expecttest, and scipy.
    """
    from gradof.cli.coverage import run_coverage

    if output is None and Path("docs").is_dir():
        output = Path("docs/coverage.md")
    if not run_coverage(tuple(dtypes.split(",")), pattern, jobs, output):
        raise click.exceptions.Exit(1)


@main.command(epilog=_FUZZ_HELP)
@click.option("--library", type=click.Choice(["torch", "numpy"]), default="torch",
              show_default=True, help="whose programs")  # fmt: skip
@click.option("--minutes", type=float, help="how long to search [default: 10, without --programs]")
@click.option("--programs", type=click.IntRange(1), help="how many programs at most")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True,
              help="of the first program; the others follow")  # fmt: skip
@click.option("--size", type=click.Choice(["small", "middle", "large", "loops"]),
              help="of the arrays, or programs with loops [default: all]")  # fmt: skip
@click.option("--subject", default="gradof",
              type=click.Choice(["gradof", "torch.compile", "torch.compile.aot", "jax"]),
              show_default=True, help="whose gradients are judged")  # fmt: skip
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default="fuzz-failures",
              show_default=True, metavar="PATH", help="where failing programs go")  # fmt: skip
@click.option("--reached/--no-reached", default=False, help="list the ops that no program had")
def fuzz(
    library: Any, minutes: float | None, programs: int | None, seed: int, size: str | None,
    subject: str, folder: Path, reached: bool,
) -> None:  # fmt: skip
    """Compare random programs with eager and float64: values, gradients, second gradients.

    What is wrong is made as small as it goes and written as a Python file that runs. Exit code 0 if
    nothing is, 1 otherwise. Torch's table of ops needs its test dependency expecttest.
    """
    from gradof.cli.fuzz import run_fuzz
    from gradof.testing.fuzz.judges import judge_of

    judge_of(library, subject)  # which says so where the subject has no such programs
    if minutes is None and programs is None:
        minutes = 10.0
    if not run_fuzz(library, minutes, programs, seed, folder, subject, size, reached):
        raise click.exceptions.Exit(1)
