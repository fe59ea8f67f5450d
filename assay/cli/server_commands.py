"""`assay watch` and `assay serve`: processes that answer until they are interrupted."""

from __future__ import annotations

import argparse
from functools import partial

from assay.cli.serve import serve as serve_tokens
from assay.report.watch import serve
from assay.runs.options.group import parsed_group
from assay.runs.options.scoring import RebuiltOptions
from assay.runs.user_code.known_runs import trust


def watch(options: argparse.Namespace) -> int:
    """`assay watch`: serves the live page until interrupted."""
    serve(options.folder, host=options.host, port=options.port)
    return 0


def serve_policy(options: argparse.Namespace) -> int:
    """`assay serve`: answers requests for tokens until interrupted."""
    if options.trust_code:
        trust(options.address)
    rebuilt, announce = parsed_group(RebuiltOptions, vars(options)), partial(print, flush=True)
    serve_tokens(options.address, options.host, options.port, token=options.token, rebuilt=rebuilt, announce=announce)
    return 0
