"""`python -m assay`."""

from assay.app.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
