"""`make bench`: the tables of this machine's CPU. `bench.gpu` and `bench.models` are run by name."""

from bench.cpu import main

main()
