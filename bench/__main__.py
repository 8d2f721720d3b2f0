"""``python -m bench``: all benches, one after another."""

from bench.run import main

raise SystemExit(main())
