"""The command `report`: makes a page and pictures of a search."""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib

from tf_placer.cli.answer import print_output
from tf_placer.cli.arguments import read_prices
from tf_placer.files import check_output
from tf_placer.text.notes import say
from tf_placer.text.stages import Stages

__all__ = ["DESCRIPTION", "add_arguments", "run"]

_LOWEST_PRIORITY = 19
_DEFAULT_OUTPUT = "report.html"
# Every page of tf_placer contains this.
_PAGE_MARK = b"<title>tf_placer: "
DESCRIPTION = (
    "Makes one HTML page that shows the placement that a search found and why it is faster: the "
    "comparison with the original, the device of each part of the model, the step over time, the "
    "load of each device, the candidates, the search over time, the limits of the step and the "
    "effect of other machines. Of several runs, the page shows all, below a table of their "
    "steps and prices. The page needs no network."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "searched",
        metavar="RUN",
        nargs="+",
        help="log_dir of an `optimize` or `search`; or a result of `search`. Several of them make "
        "one page",
    )
    parser.add_argument(
        "--output", help="file for the page (default: report.html, unless a picture is asked for)"
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        help="make the page anew while the search of `optimize` runs; it loads itself again in the "
        "browser, and the command ends with the search",
    )
    parser.add_argument(
        "--price",
        action="append",
        default=[],
        metavar="RUN=PRICE",
        help="price of the machine of a RUN per hour, in any currency, for the cost of a million "
        "steps; the RUN may be named without its folder; may be repeated",
    )
    parser.add_argument(
        "--picture", help="file for a picture of the placement (.png, .svg or .pdf)"
    )
    parser.add_argument(
        "--time_picture",
        help="file for a picture of the step over time (.png, .svg or .pdf)",
    )
    parser.add_argument(
        "--search_picture",
        help="file for a picture of the search: the best step over the samples, and the mean of 50 "
        "samples; of several runs, all in one picture (.png, .svg or .pdf)",
    )
    parser.add_argument(
        "--problem", help="problem file, for a result of `search` that is not in its log_dir"
    )


def run(args: argparse.Namespace) -> None:
    """Makes the page.

    Raises:
        ImportError: a library that the page needs is not installed.
        OSError: a file cannot be read or written.
        ValueError: there is no search, or its files are damaged.
    """
    from tf_placer.report.page.page import require_page_libraries, write_page
    from tf_placer.report.page.search_curves import name_searches
    from tf_placer.report.pictures.placement_picture import check_picture
    from tf_placer.report.pictures.run_pictures import (
        write_placements,
        write_searches,
        write_steps,
    )
    from tf_placer.runs.followed_page import follow_search
    from tf_placer.runs.run_page import check_comparable, read_run_view

    require_page_libraries()
    pictures = [
        (path, write)
        for path, write in ((args.picture, write_placements), (args.time_picture, write_steps))
        if path is not None
    ]
    _check_combination(args, has_pictures=bool(pictures))
    wanted = [path for path, _ in pictures]
    if args.search_picture is not None:
        wanted.append(args.search_picture)
    prices = read_prices(args.price, args.searched)
    for path in wanted:
        check_picture(path, *args.searched, args.problem)
    output = args.output
    if output is None and not wanted:
        output = _DEFAULT_OUTPUT
        _check_default_output()
    if output is not None:
        check_output(output, *args.searched, args.problem, *wanted)
    if args.follow:
        # The search is timed on the same cores.
        os.nice(_LOWEST_PRIORITY)
        if not os.path.exists(args.searched[0]):
            say(f"waiting for a search in {args.searched[0]}")
        for number, _ in enumerate(follow_search(args.searched[0], output, args.problem)):
            if number == 0:
                print_output(f"page: {output}")
        print_output("the search has ended: the page is final")
        return
    with Stages(say) as stages:
        views = []
        for path in args.searched:
            stages.enter(f"reading {path}")
            read = read_run_view(path, args.problem)
            views.append(dataclasses.replace(read, name=path, price_per_hour=prices.get(path)))
        view, *beside = views
        for other in beside:
            check_comparable(view, other)
        if output is not None:
            stages.enter("making the page")
            write_page(view, output, beside=beside)
            print_output(f"page: {output}")
        for path, write in pictures:
            stages.enter("making the picture")
            write(view, path)
            print_output(f"picture: {path}")
        if args.search_picture is not None:
            names = name_searches(views)
            write_searches(views, names, args.search_picture)
            print_output(f"picture: {args.search_picture}")


def _check_combination(args: argparse.Namespace, *, has_pictures: bool) -> None:
    """Checks that the arguments go together.

    Raises:
        ValueError: they do not.
    """
    from tf_placer.runs.run_page import check_number_of_runs

    check_number_of_runs(len(args.searched))
    if len(args.searched) > 1 and (args.follow or has_pictures):
        raise ValueError(
            "several runs make a page and a --search_picture: give --follow and other pictures one "
            "RUN"
        )
    has_pictures = has_pictures or args.search_picture is not None
    if args.follow and args.price:
        raise ValueError("--follow shows no prices: give --price when the search has ended")
    if args.follow and has_pictures:
        raise ValueError("--follow makes a page: ask for pictures when the search has ended")


def _check_default_output() -> None:
    """Checks that the default output replaces no file other than a page.

    Raises:
        OSError: the file is no page, or cannot be read.
    """
    path = pathlib.Path(_DEFAULT_OUTPUT)
    if path.exists() and _PAGE_MARK not in path.read_bytes():
        raise OSError(
            f"{_DEFAULT_OUTPUT!r} exists, and is no page of tf_placer: name another file with "
            "--output, or this one to replace it"
        )
